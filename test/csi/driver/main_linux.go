package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/forcefence/forcefence/test/csi/store"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "csi driver:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("which half? controller or node")
	}
	half, flags := args[0], flag.NewFlagSet(args[0], flag.ContinueOnError)
	endpoint := flags.String("endpoint", "", "unix://SOCKET to serve CSI on")
	dir := flags.String("store", "", "folder of the backing store")
	node := flags.String("node", "", "name of this node")
	kubelet := flags.String("kubelet-dir", "/var/lib/kubelet", "the kubelet's folder")
	bootFile := flags.String("boot-id-file", "/proc/sys/kernel/random/boot_id", "file with the id of this boot")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	socket, ok := strings.CutPrefix(*endpoint, "unix://")
	if !ok || *dir == "" {
		return errors.New("--endpoint unix://SOCKET and --store are needed")
	}
	st, err := store.Open(*dir)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var servers []*grpc.Server
	defer func() {
		for _, s := range servers {
			s.GracefulStop()
		}
	}()
	listen := func(socket string, s *grpc.Server) error {
		l, err := listenUnix(socket)
		if err != nil {
			return err
		}
		servers = append(servers, s)
		go func() {
			if err := s.Serve(l); err != nil {
				fail(fmt.Errorf("serving %s: %w", socket, err))
			}
		}()
		return nil
	}

	s := grpc.NewServer()
	switch half {
	case "controller":
		csi.RegisterIdentityServer(s, identity{controller: true})
		csi.RegisterControllerServer(s, &controller{store: st})
		err = listen(socket, s)
	case "node":
		b, rerr := os.ReadFile(*bootFile)
		if rerr != nil || !store.ValidID(*node) {
			return errors.Join(rerr, fmt.Errorf("boot id, and a node name: got %q", *node))
		}
		boot := strings.TrimSpace(string(b))
		if err := st.Append(store.Event{Kind: store.Boot, Node: *node, Boot: boot}); err != nil {
			return err
		}
		csi.RegisterIdentityServer(s, identity{})
		csi.RegisterNodeServer(s, &nodeHalf{store: st, node: *node, boot: boot})
		if err = listen(socket, s); err == nil { // first: the kubelet asks it as soon as it sees the registration
			r := grpc.NewServer()
			registration.RegisterRegistrationServer(r, &registrar{endpoint: socket, fail: fail})
			err = listen(filepath.Join(*kubelet, "plugins_registry", store.Driver+"-reg.sock"), r)
		}
	default:
		err = fmt.Errorf("no such half: %q", half)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// listenUnix takes the place of a socket that a killed process, or a former boot, left behind.
func listenUnix(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

type identity struct {
	csi.UnimplementedIdentityServer
	controller bool
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: store.Driver, VendorVersion: "1"}, nil
}

func (i identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	answer := &csi.GetPluginCapabilitiesResponse{}
	if i.controller {
		answer.Capabilities = []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}}}
	}
	return answer, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// registrar tells the kubelet who we are: it looks into plugins_registry for sockets and asks each (k8s.io/kubelet,
// pluginregistration v1).
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
	fail     context.CancelCauseFunc
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: store.Driver, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus ends the process if the kubelet refused: it asks again only when the socket appears again.
func (r *registrar) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		r.fail(fmt.Errorf("register with the kubelet: %s", s.Error))
	}
	return &registration.RegistrationStatusResponse{}, nil
}
