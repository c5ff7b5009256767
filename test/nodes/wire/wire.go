// Package wire is what a lab and the init program of its nodes say to each other: one Boot when a node gets power, then
// requests and answers, as JSON, over a socket that init inherits. It imports nothing.
package wire

// Socket is init's file descriptor of the socket.
const Socket = 3

// ContainerHook is init's argument where it is an OCI hook of containers.
const ContainerHook = "container"

// Services that init runs, in this order.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
)

// Boot tells a node's init what machine it is. Paths named host are outside the node, the others inside.
type Boot struct {
	Hostname   string
	BootID     string
	SystemUUID string
	Scratch    string            // host: an empty folder of the node, where its root is put together
	Binds      []Bind            // in order
	Tmpfs      []string          // fresh at each boot
	Links      map[string]string // symbolic links to make: name to target
	Env        []string          // of the services
	Services   []Service
}

// Bind is a file or folder of the host that lies over a path of the node.
type Bind struct {
	Host, Inside string
	ReadOnly     bool
}

// Service is a program that init starts, and starts again when it ends by itself.
type Service struct {
	Name    string
	Argv    []string
	Log     string // inside
	Awaits  string // a Unix socket that must accept before the first start; "": none
	Stopped bool   // do not start it at boot
}

// What a lab asks of init.
const (
	Up    = "up"    // the network is there: start the services
	Start = "start" // a service that was stopped
	Stop  = "stop"  // a service: SIGTERM, later SIGKILL; it stays down until Start
	Kill  = "kill"  // a service, once: it is started again as after a crash
	PID   = "pid"   // of a service, 0 while it is down
)

// Request is one of these.
type Request struct {
	Do      string
	Service string
}

// Answer comes once for each Request, and once after a Boot when the node's root is ready.
type Answer struct {
	PID int    // inside
	Err string // "": done
}
