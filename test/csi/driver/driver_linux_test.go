package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/csi/store"
	"github.com/forcefence/forcefence/test/kit"
)

// asDriver makes this test binary the driver: its processes are what the test kills.
const asDriver = "FORCEFENCE_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) == "1" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

type san struct {
	t     *testing.T
	dir   string
	store *store.Store
}

func newSAN(t *testing.T) *san {
	t.Helper()
	missing := store.Missing()
	if _, err := os.Stat("/dev/loop-control"); missing == "" && (err != nil || os.Geteuid() != 0) {
		missing = "mounting needs root and loop devices"
	}
	kit.Need(t, missing, cluster.RequireNodes)
	dir, err := kit.MakeSocketDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s, err := store.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	return &san{t: t, dir: dir, store: s}
}

// half is a process of the driver.
type half struct {
	cmd  *exec.Cmd
	conn *grpc.ClientConn
	dir  string
}

func (s *san) start(name string, attr *syscall.SysProcAttr, args ...string) *half {
	s.t.Helper()
	h := &half{dir: filepath.Join(s.dir, name)}
	socket := "unix://" + filepath.Join(h.dir, "csi.sock")
	h.cmd = exec.Command(os.Args[0], append(args, "--endpoint", socket, "--store", s.store.Dir())...)
	h.cmd.Env = append(os.Environ(), asDriver+"=1")
	h.cmd.Stderr = os.Stderr
	h.cmd.SysProcAttr = attr
	if err := h.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(h.kill)
	var err error
	if h.conn, err = grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { h.conn.Close() })
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	if _, err := csi.NewNodeClient(h.conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{},
		grpc.WaitForReady(true)); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// node is a machine: a mount and a PID namespace, whose PID 1 is its node half.
func (s *san) node(name, boot string) *half {
	s.t.Helper()
	file := filepath.Join(s.dir, name+"-boot")
	if err := os.WriteFile(file, []byte(boot+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return s.start(name, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Cloneflags: syscall.CLONE_NEWPID},
		"--node", name, "--kubelet-dir", filepath.Join(s.dir, name), "--boot-id-file", file)
}

// kill is the power cut of a node.
func (h *half) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// sees is a path as the node has it mounted.
func (h *half) sees(path string) string {
	return filepath.Join("/proc", strconv.Itoa(h.cmd.Process.Pid), "root", path)
}

var writer = &csi.VolumeCapability{
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
}

func (s *san) want(code codes.Code, what string, err error) {
	s.t.Helper()
	if got := status.Code(err); got != code {
		s.t.Fatalf("%s: got %s (%v), want %s", what, got, err, code)
	}
}

func (s *san) publish(node string) error {
	_, err := (&store.Controller{Store: s.store}).ControllerPublishVolume(s.t.Context(),
		&csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: node, VolumeCapability: writer})
	return err
}

func (s *san) unpublish(node string) error {
	_, err := (&store.Controller{Store: s.store}).ControllerUnpublishVolume(s.t.Context(),
		&csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: node})
	return err
}

func (h *half) staged() string { return filepath.Join(h.dir, "staged") }
func (h *half) target() string { return filepath.Join(h.dir, "target") }

func (s *san) stage(h *half) error {
	_, err := csi.NewNodeClient(h.conn).NodeStageVolume(s.t.Context(),
		&csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: h.staged(), VolumeCapability: writer})
	return err
}

func (s *san) bind(h *half) error {
	_, err := csi.NewNodeClient(h.conn).NodePublishVolume(s.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: "v", StagingTargetPath: h.staged(), TargetPath: h.target(), VolumeCapability: writer,
	})
	return err
}

func (s *san) unbind(h *half) error {
	_, err := csi.NewNodeClient(h.conn).NodeUnpublishVolume(s.t.Context(),
		&csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: h.target()})
	return err
}

func (s *san) unstage(h *half) error {
	_, err := csi.NewNodeClient(h.conn).NodeUnstageVolume(s.t.Context(),
		&csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: h.staged()})
	return err
}

func (s *san) free() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), letGo)
	defer cancel()
	if err := awaitFree(ctx, s.store.Disk("v")); err != nil {
		s.t.Fatal(err)
	}
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, d := range devices {
		if b, err := os.ReadFile(d); err == nil && strings.HasPrefix(string(b), s.dir) {
			s.t.Errorf("%s is left: %s", d, b)
		}
	}
}

func (s *san) violations() []string {
	s.t.Helper()
	log, err := s.store.Log()
	if err != nil {
		s.t.Fatal(err)
	}
	return store.Violations(log)
}

func (s *san) kinds(k store.Kind) int {
	log, _ := s.store.Log()
	return len(slices.DeleteFunc(log, func(e store.Event) bool { return e.Kind != k }))
}

// TestPowerCut moves a volume from a node whose power is cut to another one. Every call is made twice: CSI wants them
// repeatable.
func TestPowerCut(t *testing.T) {
	s := newSAN(t)
	a, b := s.node("a", "a1"), s.node("b", "b1")
	s.want(codes.NotFound, "publish a volume that does not exist", s.publish("a"))
	s.want(codes.NotFound, "stage a volume that does not exist", s.stage(a))
	if err := s.store.Create("v"); err != nil {
		t.Fatal(err)
	}
	s.want(codes.FailedPrecondition, "stage before publish", s.stage(a))
	for range 2 {
		s.want(codes.OK, "publish to a", s.publish("a"))
	}
	s.want(codes.FailedPrecondition, "publish to b while a has it", s.publish("b"))
	s.want(codes.FailedPrecondition, "stage on b while a has it", s.stage(b))
	s.want(codes.FailedPrecondition, "bind before stage", s.bind(a))
	for range 2 {
		s.want(codes.OK, "stage on a", s.stage(a))
	}
	for range 2 {
		s.want(codes.OK, "bind on a", s.bind(a))
	}
	if err := os.WriteFile(a.sees(filepath.Join(a.target(), "data")), []byte("of a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(a.target(), "data")); err == nil {
		t.Fatal("the node's mount is the machine's as well: it would outlive the node")
	}

	a.kill()
	s.free()
	if err := s.store.Append(store.Event{Kind: store.Off, Node: "a", Boot: "a1"}); err != nil {
		t.Fatal(err)
	}
	s.want(codes.FailedPrecondition, "stage on b before a's detach", s.stage(b))
	for range 2 {
		s.want(codes.OK, "unpublish from a", s.unpublish("a"))
	}
	s.want(codes.OK, "publish to b", s.publish("b"))
	s.want(codes.OK, "a late unpublish from a", s.unpublish("a"))
	s.want(codes.OK, "stage on b", s.stage(b))
	s.want(codes.OK, "bind on b", s.bind(b))
	if got, err := os.ReadFile(b.sees(filepath.Join(b.target(), "data"))); err != nil || string(got) != "of a" {
		t.Errorf("data on b: got %q, %v; want what a wrote", got, err)
	}
	a = s.node("a", "a2")
	s.want(codes.FailedPrecondition, "stage on a after its return", s.stage(a))

	for range 2 {
		s.want(codes.OK, "unbind", s.unbind(b))
	}
	if _, err := os.Stat(b.target()); !os.IsNotExist(err) {
		t.Errorf("target path after unbind: got %v, want it gone", err)
	}
	for range 2 {
		s.want(codes.OK, "unstage", s.unstage(b))
	}
	s.free()
	s.want(codes.OK, "unpublish from all", s.unpublish(""))
	if v := s.violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}
	// Repeated calls change nothing: one line for each fact.
	for kind, want := range map[store.Kind]int{
		store.Publish: 2, store.Unpublish: 2, store.Mount: 2, store.Unmount: 1, store.Boot: 3, store.Busy: 0,
		store.Refused: 4,
	} {
		if got := s.kinds(kind); got != want {
			t.Errorf("%s in the log: got %d, want %d", kind, got, want)
		}
	}
}

// TestHeldMount has a mount outlive its node's processes: the kernel must refuse the second mount, and the log must say
// so.
func TestHeldMount(t *testing.T) {
	s := newSAN(t)
	a, b := s.node("a", "a1"), s.node("b", "b1")
	if err := s.store.Create("v"); err != nil {
		t.Fatal(err)
	}
	s.want(codes.OK, "publish to a", s.publish("a"))
	s.want(codes.OK, "stage on a", s.stage(a))
	namespace, err := os.Open(filepath.Join("/proc", strconv.Itoa(a.cmd.Process.Pid), "ns/mnt"))
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	a.kill()
	s.want(codes.OK, "unpublish from a", s.unpublish("a"))
	s.want(codes.OK, "publish to b", s.publish("b"))
	s.want(codes.FailedPrecondition, "stage on b while the mount lives", s.stage(b))
	v := strings.Join(s.violations(), "\n")
	if !strings.Contains(v, "unpublished from a while mounted there") ||
		!strings.Contains(v, "given to b (boot b1) while mounted on a (boot a1)") {
		t.Errorf("violations: got %s", v)
	}
	namespace.Close()
	s.free()
	s.want(codes.OK, "stage on b", s.stage(b))
	b.kill()
	s.free()
}
