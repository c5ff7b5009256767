package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forcefence/forcefence/test/csi/store"
)

// controller is the storage's own side. All it knows is in the store, so it may be killed at any moment.
type controller struct {
	csi.UnimplementedControllerServer
	store *store.Store
}

func (*controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return answer, nil
}

func (c *controller) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	id := req.GetName()
	if id == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name and volume_capabilities are needed")
	}
	if err := supported(req.GetVolumeCapabilities()...); err != nil {
		return nil, err
	}
	if !store.ValidID(id) { // CSI allows any name
		sum := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(sum[:16])
	}
	required, limit := req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes()
	if limit > 0 && limit < max(required, store.MinSize) {
		return nil, status.Errorf(codes.OutOfRange, "limit_bytes %d is too small", limit)
	}
	r, err := c.store.Create(id, required)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if r.Size < required || limit > 0 && r.Size > limit {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with %d bytes", id, r.Size)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: r.Size}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is needed")
	}
	err := c.store.Delete(req.GetVolumeId(), func(r store.Record) error {
		if r.Node != "" {
			return status.Errorf(codes.FailedPrecondition, "volume %s is published to %s", req.GetVolumeId(), r.Node)
		}
		return nil
	})
	return &csi.DeleteVolumeResponse{}, toStatus(err)
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_id and volume_capabilities are needed")
	}
	if _, err := c.store.Get(req.GetVolumeId()); err != nil {
		return nil, toStatus(err)
	}
	if err := supported(req.GetVolumeCapabilities()...); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: req.GetVolumeCapabilities()},
	}, nil
}

func (c *controller) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := req.GetVolumeId(), req.GetNodeId()
	if id == "" || node == "" || req.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume_id, node_id and volume_capability are needed")
	}
	if err := supported(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
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
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is needed")
	}
	err := c.store.With(id, func(r *store.Record) error {
		if r.Node == "" || req.GetNodeId() != "" && req.GetNodeId() != r.Node { // without a node: from all (CSI)
			return nil
		}
		// The line comes first: if we are killed between the two, the call is repeated, and so is the line.
		err := c.store.Append(store.Event{Kind: store.Unpublish, Node: r.Node, Volume: id})
		r.Node = ""
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return &csi.ControllerUnpublishVolumeResponse{}, toStatus(err)
}

// supported refuses everything but a file system for the writers of one node.
func supported(caps ...*csi.VolumeCapability) error {
	for _, c := range caps {
		switch m := c.GetAccessMode().GetMode(); m {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:
		default:
			return status.Errorf(codes.InvalidArgument, "access mode %s is not supported", m)
		}
		if c.GetMount() == nil {
			return status.Error(codes.InvalidArgument, "only mounted volumes are supported")
		}
		if t := c.GetMount().GetFsType(); t != "" && t != "ext4" {
			return status.Errorf(codes.InvalidArgument, "file system %q is not supported", t)
		}
	}
	return nil
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
