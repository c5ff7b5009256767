package main

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forcefence/forcefence/test/csi/store"
)

// controller is the storage's own side. All it knows is in the store, so it may be killed at any moment. Volumes are
// made and deleted in the store, past it.
type controller struct {
	csi.UnimplementedControllerServer
	store *store.Store
}

func (*controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		}}}}}, nil
}

func (c *controller) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := req.GetVolumeId(), req.GetNodeId()
	err := c.store.With(id, func(r *store.Record) error {
		switch r.Node {
		case node:
			return nil
		case "":
			r.Node = node
			return c.store.Append(store.Event{Kind: store.Publish, Node: node, Volume: id})
		default:
			return status.Errorf(codes.FailedPrecondition, "volume %s is published to %s", id, r.Node)
		}
	})
	return &csi.ControllerPublishVolumeResponse{}, toStatus(err)
}

// ControllerUnpublishVolume takes the volume away, mounted or not, as an array does: what comes of it is the log's to
// tell.
func (c *controller) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	id := req.GetVolumeId()
	err := c.store.With(id, func(r *store.Record) error {
		if r.Node == "" || req.GetNodeId() != "" && req.GetNodeId() != r.Node { // without a node: from all (CSI)
			return nil
		}
		// The line comes first: if we are killed between the two, the call is repeated, and so is the line.
		err := c.store.Append(store.Event{Kind: store.Unpublish, Node: r.Node, Volume: id})
		r.Node = ""
		return err
	})
	return &csi.ControllerUnpublishVolumeResponse{}, toStatus(err)
}

func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, store.ErrNotFound) {
		return status.Error(codes.NotFound, err.Error())
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Internal, err.Error())
}
