// Command csi-driver is the part of a CSI driver that CSI-Addons' manager calls: it fences the clients of its storage.
// It remembers every call in a file, and fails, or waits, as the test asks by files. This module's path is below the
// project's, because Go lets only such modules import its internal packages.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-addons/kubernetes-csi-addons/internal/proto"
	"github.com/csi-addons/spec/lib/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// driver answers for one node. The files in dir are shared by all of a driver's nodes.
type driver struct {
	proto.UnimplementedNetworkFenceServer
	identity.UnimplementedIdentityServer
	node, dir string
	cidrs     []string
}

func main() {
	listen := flag.String("listen", "", "address")
	d := &driver{}
	flag.StringVar(&d.node, "node", "", "name of the node")
	flag.StringVar(&d.dir, "dir", "", "folder of the files calls, fail and hold")
	cidrs := flag.String("cidrs", "", "addresses of this node's client, by commas")
	flag.Parse()
	d.cidrs = strings.Split(*cidrs, ",")
	if err := d.serve(*listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (d *driver) serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	proto.RegisterNetworkFenceServer(s, d)
	identity.RegisterIdentityServer(s, d)
	return s.Serve(l)
}

func (d *driver) GetCapabilities(
	context.Context, *identity.GetCapabilitiesRequest,
) (*identity.GetCapabilitiesResponse, error) {
	var all []*identity.Capability
	for _, t := range []identity.Capability_NetworkFence_Type{
		identity.Capability_NetworkFence_NETWORK_FENCE, identity.Capability_NetworkFence_GET_CLIENTS_TO_FENCE,
	} {
		all = append(all, &identity.Capability{Type: &identity.Capability_NetworkFence_{
			NetworkFence: &identity.Capability_NetworkFence{Type: t}}})
	}
	return &identity.GetCapabilitiesResponse{Capabilities: all}, nil
}

func (d *driver) GetFenceClients(
	context.Context, *proto.FenceClientsRequest,
) (*proto.FenceClientsResponse, error) {
	return &proto.FenceClientsResponse{Clients: []*proto.ClientDetails{{Id: "a-storage-cluster", Cidrs: d.cidrs}}}, nil
}

func (d *driver) FenceClusterNetwork(
	ctx context.Context, r *proto.NetworkFenceRequest,
) (*proto.NetworkFenceResponse, error) {
	return d.call(ctx, "fence", r)
}

func (d *driver) UnFenceClusterNetwork(
	ctx context.Context, r *proto.NetworkFenceRequest,
) (*proto.NetworkFenceResponse, error) {
	return d.call(ctx, "unfence", r)
}

// call appends the call to the file calls before it waits, and its end after it has succeeded.
func (d *driver) call(
	ctx context.Context, what string, r *proto.NetworkFenceRequest,
) (*proto.NetworkFenceResponse, error) {
	if err := d.remember("asked to "+what, r); err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(d.dir, "hold")); errors.Is(err, os.ErrNotExist) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if text, err := os.ReadFile(filepath.Join(d.dir, "fail")); err == nil {
		return nil, status.Error(codes.Internal, string(text))
	}
	return &proto.NetworkFenceResponse{}, d.remember(what, r)
}

func (d *driver) remember(what string, r *proto.NetworkFenceRequest) error {
	f, err := os.OpenFile(filepath.Join(d.dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(f).Encode(map[string]any{"node": d.node, "what": what, "cidrs": r.Cidrs, "at": time.Now()})
}
