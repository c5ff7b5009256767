package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forcefence/forcefence/test/csi/store"
)

// nodeHalf mounts on one node. It keeps nothing in memory: what is mounted, the kernel knows.
type nodeHalf struct {
	csi.UnimplementedNodeServer
	store      *store.Store
	node, boot string
}

func (n *nodeHalf) event(k store.Kind, volume, result string) error {
	return n.store.Append(store.Event{Kind: k, Node: n.node, Boot: n.boot, Volume: volume, Result: result})
}

func (n *nodeHalf) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.node}, nil
}

func (*nodeHalf) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{
		Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
		}}}}, nil
}

// allowed calls f under the volume's lock if the volume is published to this node.
func (n *nodeHalf) allowed(id string, f func() error) error {
	return store.Status(n.store.With(id, func(owner *string) error {
		if *owner != n.node {
			err := status.Errorf(codes.FailedPrecondition, "volume %s is published to %q, not to %s", id, *owner,
				n.node)
			return errors.Join(n.event(store.Refused, id, err.Error()), err)
		}
		return f()
	}))
}

// NodeStageVolume mounts the disk once for all pods of the node.
func (n *nodeHalf) NodeStageVolume(_ context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse,
	error) {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	return &csi.NodeStageVolumeResponse{}, n.allowed(id, func() error {
		if on, err := mounted(path); on || err != nil {
			return err
		}
		if err := os.MkdirAll(path, 0o750); err != nil {
			return err
		}
		disk, err := lockDisk(n.store.Disk(id))
		if errors.Is(err, errBusy) {
			err := status.Errorf(codes.FailedPrecondition, "volume %s is published to %s, but still mounted somewhere",
				id, n.node)
			return errors.Join(n.event(store.Busy, id, err.Error()), err)
		}
		if err != nil {
			return err
		}
		defer disk.Close() // the loop device has its own hold on it
		if err := n.event(store.Mount, id, ""); err != nil {
			return err
		}
		if err := mountDisk(disk, path); err != nil {
			err = fmt.Errorf("mount volume %s at %s: %w", id, path, err)
			return errors.Join(n.event(store.Unmount, id, err.Error()), err)
		}
		return nil
	})
}

// letGo is how long the kernel may take to take a loop device down after its last unmount.
const letGo = 5 * time.Second

func (n *nodeHalf) NodeUnstageVolume(ctx context.Context,
	req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	err := n.store.With(id, func(*string) error {
		on, err := mounted(path)
		if !on || err != nil {
			return err
		}
		if err := unmount(path); err != nil {
			return err
		}
		// Unmounted is what the kernel says, not the call: a copy in another namespace would go on writing.
		ctx, cancel := context.WithTimeout(ctx, letGo)
		defer cancel()
		if err := awaitFree(ctx, n.store.Disk(id)); err != nil {
			return fmt.Errorf("unmount volume %s: %w", id, err)
		}
		return n.event(store.Unmount, id, "")
	})
	return &csi.NodeUnstageVolumeResponse{}, store.Status(err)
}

// NodePublishVolume shows the staged disk to a pod.
func (n *nodeHalf) NodePublishVolume(_ context.Context,
	req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, staged, target := req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath()
	return &csi.NodePublishVolumeResponse{}, n.allowed(id, func() error {
		if on, err := mounted(staged); err != nil || !on {
			return errors.Join(err,
				status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", id, staged))
		}
		if on, err := mounted(target); on || err != nil {
			return err
		}
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		if err := unix.Mount(staged, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", staged, target, err)
		}
		return nil
	})
}

// NodeUnpublishVolume leaves no folder behind: CSI wants the target path gone.
func (n *nodeHalf) NodeUnpublishVolume(_ context.Context,
	req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	on, err := mounted(req.GetTargetPath())
	if on && err == nil {
		err = unmount(req.GetTargetPath())
	}
	if err == nil {
		if err = os.Remove(req.GetTargetPath()); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return &csi.NodeUnpublishVolumeResponse{}, store.Status(err)
}
