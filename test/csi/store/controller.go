//go:build unix

package store

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Controller is the storage's own side: CSI's controller and identity services. All it knows is in the store. Volumes
// are made there, past it.
type Controller struct {
	csi.UnimplementedControllerServer
	csi.UnimplementedIdentityServer
	Store *Store
}

// GetPluginInfo returns the driver's name.
func (*Controller) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Driver, VendorVersion: "1"}, nil
}

// GetPluginCapabilities returns that there is a controller.
func (*Controller) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE,
		}}}}}, nil
}

// Probe answers that it is ready.
func (*Controller) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// ControllerGetCapabilities returns that volumes are attached.
func (*Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		}}}}}, nil
}

// ControllerPublishVolume gives the volume to one node at a time.
func (c *Controller) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := req.GetVolumeId(), req.GetNodeId()
	err := c.Store.With(id, func(owner *string) error {
		switch *owner {
		case node:
			return nil
		case "":
			*owner = node
			return c.Store.Append(Event{Kind: Publish, Node: node, Volume: id})
		default:
			return status.Errorf(codes.FailedPrecondition, "volume %s is published to %s", id, *owner)
		}
	})
	return &csi.ControllerPublishVolumeResponse{}, Status(err)
}

// ControllerUnpublishVolume takes the volume away, mounted or not, as an array does: what comes of it is the log's to
// tell.
func (c *Controller) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	id := req.GetVolumeId()
	err := c.Store.With(id, func(owner *string) error {
		if *owner == "" || req.GetNodeId() != "" && req.GetNodeId() != *owner { // without a node: from all (CSI)
			return nil
		}
		// The line comes first: if we are killed between the two, the call is repeated, and so is the line.
		err := c.Store.Append(Event{Kind: Unpublish, Node: *owner, Volume: id})
		*owner = ""
		return err
	})
	return &csi.ControllerUnpublishVolumeResponse{}, Status(err)
}

// Status is an error of the store as gRPC shows it; one that is a status already stays.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrNotFound) {
		return status.Error(codes.NotFound, err.Error())
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Internal, err.Error())
}
