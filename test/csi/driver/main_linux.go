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
	flags := flag.NewFlagSet("driver", flag.ContinueOnError)
	endpoint := flags.String("endpoint", "", "unix://SOCKET to serve CSI on")
	dir := flags.String("store", "", "folder of the backing store")
	node := flags.String("node", "", "name of this node")
	kubelet := flags.String("kubelet-dir", "/var/lib/kubelet", "the kubelet's folder")
	bootFile := flags.String("boot-id-file", "/proc/sys/kernel/random/boot_id", "file with the id of this boot")
	if err := flags.Parse(args); err != nil {
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

	b, err := os.ReadFile(*bootFile)
	if err != nil || !store.ValidID(*node) {
		return errors.Join(err, fmt.Errorf("boot id, and a node name: got %q", *node))
	}
	boot := strings.TrimSpace(string(b))
	if err := st.Append(store.Event{Kind: store.Boot, Node: *node, Boot: boot}); err != nil {
		return err
	}
	s := grpc.NewServer()
	csi.RegisterNodeServer(s, &nodeHalf{store: st, node: *node, boot: boot})
	if err = listen(socket, s); err == nil { // first: the kubelet asks it as soon as it sees the registration
		r := grpc.NewServer()
		registration.RegisterRegistrationServer(r, &registrar{endpoint: socket, fail: fail})
		err = listen(filepath.Join(*kubelet, "plugins_registry", store.Driver+"-reg.sock"), r)
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
