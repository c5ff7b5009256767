package install

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// hostProcess is a process as procfs shows it to everyone. What is open, a program's path and the namespaces are shown
// only to whom may trace the process, and the hook's container may not.
type hostProcess struct {
	process
	parent int
	argv   []string // chosen by the process
	exe    string   // its program; "": it is not shown
	cgroup string   // the text of /proc/PID/cgroup
	uids   string   // real, effective, saved and of the file system
	depth  int      // in how many pid namespaces it is, from procfs's own on; 0: unknown
}

// name returns the program's name in argv. Some programs write their command into the first argument as well.
func (p hostProcess) name() string {
	if len(p.argv) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(p.argv[0], " ")
	return filepath.Base(first)
}

// flag returns the value of a flag: of several the last, "" for none. It takes --name=value and --name value.
func (p hostProcess) flag(names ...string) (value string) {
	for i, arg := range p.argv {
		name, after, has := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") || !slices.Contains(names, strings.TrimLeft(name, "-")) {
			continue
		}
		if !has && i+1 < len(p.argv) {
			after = p.argv[i+1]
		}
		value = after
	}
	return value
}

// servesPods reports whether the process may be a kubelet or a container runtime, by its name.
func (p hostProcess) servesPods() (kubelet, runtime bool) {
	switch p.name() {
	case "kubelet", "kubelite":
		return true, false
	case "k3s": // also the name of its tools
		words := strings.Fields(strings.Join(p.argv, " "))
		return len(words) > 1 && (words[1] == "server" || words[1] == "agent"), false
	default:
		return false, kindOf(p) != ""
	}
}

// isHosts reports whether the host itself runs the process, as root. Anyone may call a process kubelet. So a process in
// a pid namespace below procfs's own does not count, nor one in a pod's cgroup. Those are below kubepods. A reader in a
// pod sees paths from its own cgroup on, and a pod's has fewer steps up to what they share than that of process 1. The
// host may be a pod itself.
func (p hostProcess) isHosts(init string) bool {
	if p.depth != 1 || strings.Join(strings.Fields(p.uids), " ") != "0 0 0 0" || p.cgroup == "" {
		return false
	}
	inits := maps.Collect(cgroupPaths(init))
	for hierarchy, path := range cgroupPaths(p.cgroup) {
		if of := inits[hierarchy]; strings.Count(path, "kubepods") > strings.Count(of, "kubepods") ||
			strings.Count(path, "/..") < strings.Count(of, "/..") {
			return false
		}
	}
	return true
}

// cgroupPaths returns the path of each hierarchy in a text of /proc/PID/cgroup.
func cgroupPaths(text string) iter.Seq2[string, string] {
	return func(yield func(hierarchy, path string) bool) {
		for line := range strings.Lines(text) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) == 3 && !yield(parts[0], parts[2]) {
				return
			}
		}
	}
}

// unit returns the systemd unit that a process belongs to, or "".
func (p hostProcess) unit() (unit string) {
	for _, path := range cgroupPaths(p.cgroup) {
		for part := range strings.SplitSeq(path, "/") {
			if name, is := strings.CutSuffix(part, ".service"); is && name != "" {
				unit = name
			}
		}
	}
	return unit
}

// kubelet is what the kubelet's own command line says.
type kubelet struct {
	process    hostProcess
	kubeconfig string
	endpoint   string // the runtime's socket; "": unknown
	embeds     bool   // it started the runtime itself
}

// findSite returns the site of the runtime that serves the host's kubelet, with the kubelet's kubeconfig. The processes
// begin with process 1. files is the host's root. command replaces the command line of the runtime's process.
//
// Several containerds may run on a host: Docker's, or one for the system's own services. Then the kubelet's endpoint
// decides. The error says what is missing, and which flag names it; the site holds what was found all the same.
func findSite(all iter.Seq[hostProcess], files fs.FS, command string) (Site, error) {
	var kubelets, others []hostProcess
	init := ""
	for p := range all {
		if p.PID == 1 {
			init = p.cgroup
		}
		if !p.isHosts(init) {
			continue
		}
		if kubelet, runtime := p.servesPods(); kubelet {
			kubelets = append(kubelets, p)
		} else if runtime {
			others = append(others, p)
		}
	}
	k, missing := findKubelet(kubelets, others, files)
	if command != "" {
		p := hostProcess{argv: strings.Fields(command)}
		s, err := siteOf(p, files)
		for _, o := range others {
			if o.name() == p.name() {
				s.processes = append(s.processes, o.process)
			}
		}
		s.Kubeconfig = k.kubeconfig
		return s, errors.Join(err, missing)
	}
	serving, err := findRuntime(others, k, files)
	if err != nil {
		return Site{Kubeconfig: k.kubeconfig}, errors.Join(missing, err)
	}
	s, err := siteOf(serving[0], files)
	for _, p := range serving {
		s.processes = append(s.processes, p.process)
	}
	s.Kubeconfig = k.kubeconfig
	return s, errors.Join(missing, err)
}

// findKubelet reads the kubelet's command line, or that of the program which embeds it: MicroK8s' kubelite reads the
// arguments from a file, and k3s overwrites its own.
func findKubelet(all, runtimes []hostProcess, files fs.FS) (k kubelet, _ error) {
	if i := slices.IndexFunc(all, func(p hostProcess) bool { return p.name() == "kubelet" }); i >= 0 {
		all = slices.DeleteFunc(all, func(p hostProcess) bool { return p.name() != "kubelet" })
	}
	switch len(all) {
	case 0:
		return k, errors.New("no process of this host is its kubelet: mount the host's /proc, or set --kubeconfig")
	case 1:
	default:
		return k, fmt.Errorf("processes %d and %d both are kubelets of this host: set --kubeconfig and "+
			"--runtime-command", all[0].PID, all[1].PID)
	}
	k.process = all[0]
	switch k.process.name() {
	case "kubelite":
		k.process.argv = append(k.process.argv[:1:1], kubeliteArgs(k.process.flag("kubelet-args-file"), files)...)
	case "k3s":
		k.embeds = true
		data := cmp.Or(k.process.flag("data-dir", "d"), "/var/lib/rancher/k3s")
		for _, r := range runtimes {
			if dir, is := strings.CutSuffix(r.flag("config", "c"), "/agent/etc/containerd/config.toml"); is &&
				r.parent == k.process.PID {
				data = dir
			}
		}
		k.kubeconfig = data + "/agent/kubelet.kubeconfig"
		k.endpoint = toSocket(k.process.flag("container-runtime-endpoint"))
		k.embeds = k.endpoint == ""
		return k, nil
	}
	k.kubeconfig = k.process.flag("kubeconfig")
	k.endpoint = toSocket(cmp.Or(k.process.flag("container-runtime-endpoint"), configuredEndpoint(k.process, files),
		"/run/containerd/containerd.sock")) // the kubelet's own default
	if k.kubeconfig == "" {
		return k, fmt.Errorf("the kubelet (process %d) has no --kubeconfig: set --kubeconfig", k.process.PID)
	}
	return k, nil
}

// kubeliteArgs returns the kubelet's arguments in a file of MicroK8s, whose snap's two folders are variables there.
func kubeliteArgs(file string, files fs.FS) []string {
	text, _ := readBounded(files, file)
	data := filepath.Dir(filepath.Dir(file)) // /var/snap/microk8s/NUMBER/args/kubelet
	vars := strings.NewReplacer("${SNAP_DATA}", data, "$SNAP_DATA", data,
		"${SNAP_COMMON}", filepath.Dir(data)+"/common", "$SNAP_COMMON", filepath.Dir(data)+"/common")
	return strings.Fields(vars.Replace(string(text)))
}

// configuredEndpoint returns the endpoint in the kubelet's configuration file or in its drop-ins, of which the last
// wins; "" for none.
func configuredEndpoint(p hostProcess, files fs.FS) (endpoint string) {
	names := []string{p.flag("config")}
	if dir := p.flag("config-dir"); dir != "" {
		more, _ := fs.Glob(files, inRoot(dir)+"/*.conf")
		names = append(names, more...)
	}
	for _, name := range names {
		var c struct {
			Endpoint string `yaml:"containerRuntimeEndpoint"`
		}
		text, err := readBounded(files, name)
		if err == nil && yaml.Unmarshal(text, &c) == nil {
			endpoint = cmp.Or(c.Endpoint, endpoint)
		}
	}
	return endpoint
}

// findRuntime returns the processes of the runtime that serves the kubelet. There are several for a moment, when it is
// restarted.
func findRuntime(all []hostProcess, k kubelet, files fs.FS) ([]hostProcess, error) {
	all = slices.DeleteFunc(all, func(p hostProcess) bool { // what a shim or a person runs for a moment
		return slices.ContainsFunc(p.argv, func(arg string) bool {
			return slices.Contains([]string{"publish", "config", "oci-hook", "--version", "-v", "version"}, arg)
		})
	})
	var serving []hostProcess
	for _, p := range all {
		if k.embeds && p.parent == k.process.PID || !k.embeds && k.endpoint != "" && socketOf(p, files) == k.endpoint {
			serving = append(serving, p)
		}
	}
	switch {
	case len(serving) > 0:
		return serving, nil
	case len(all) == 0:
		return nil, errors.New("neither containerd nor CRI-O runs on this host: set --runtime-command")
	case len(all) == 1 && (k.endpoint == "" || strings.Contains(k.endpoint, all[0].name())):
		return all, nil // its own configuration may name the socket elsewhere
	case k.endpoint == "":
		return nil, fmt.Errorf("processes %d and %d both are container runtimes, and the kubelet's endpoint is "+
			"unknown: set --runtime-command", all[0].PID, all[1].PID)
	default:
		return nil, fmt.Errorf("no containerd and no CRI-O of this host serves the kubelet's endpoint %s: set "+
			"--runtime-command", k.endpoint)
	}
}

// socketOf returns the socket that a runtime's process serves, by its command line and its configuration.
func socketOf(p hostProcess, files fs.FS) string {
	var c struct {
		GRPC struct {
			Address string `toml:"address"`
		} `toml:"grpc"`
		CRIO struct {
			API struct {
				Listen string `toml:"listen"`
			} `toml:"api"`
		} `toml:"crio"`
		Plugins struct {
			GRPC struct {
				Address string `toml:"address"`
			} `toml:"io.containerd.server.v1.grpc"` // since version 4 of the configuration
		} `toml:"plugins"`
	}
	k := kinds[kindOf(p)]
	if text, err := readBounded(files, cmp.Or(p.flag("config", "c"), k.config)); err == nil {
		_ = toml.Unmarshal(text, &c)
	}
	if kindOf(p) == crio {
		return toSocket(cmp.Or(p.flag("listen"), c.CRIO.API.Listen, "/run/crio/crio.sock"))
	}
	return toSocket(cmp.Or(p.flag("address", "a"), c.Plugins.GRPC.Address, c.GRPC.Address,
		"/run/containerd/containerd.sock"))
}

// toSocket returns an endpoint's path, by its one name: /var/run is a link to /run.
func toSocket(endpoint string) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	if path == "" {
		return ""
	}
	path = filepath.Clean("/" + path)
	if in, is := strings.CutPrefix(path, "/var/run/"); is {
		return "/run/" + in
	}
	return path
}

// kindOf returns which runtime a process is, or "".
func kindOf(p hostProcess) RuntimeName {
	for name, k := range kinds {
		if k.process == p.name() {
			return name
		}
	}
	return ""
}

// siteOf returns the site of a runtime by its command line.
func siteOf(p hostProcess, files fs.FS) (Site, error) {
	name := kindOf(p)
	k, known := kinds[name]
	if !known {
		return Site{}, fmt.Errorf("--runtime-command %q is neither containerd nor crio", strings.Join(p.argv, " "))
	}
	s := Site{Runtime: name, Unit: cmp.Or(p.unit(), k.process), Config: cmp.Or(p.flag("config", "c"), k.config)}
	if name == crio {
		s.ConfDir = cmp.Or(p.flag("config-dir", "d"), k.confDir)
	} else {
		s.ConfDir = importedDir(s.Config, files)
	}
	s.Program = programOf(p, s.Config, files)
	return s, nil
}

// importedDir returns the folder of drop-ins that containerd's configuration imports; if it imports none, the one
// beside it.
func importedDir(config string, files fs.FS) string {
	var c struct {
		Imports []string `toml:"imports"`
	}
	if text, err := readBounded(files, config); err == nil {
		_ = toml.Unmarshal(text, &c)
	}
	for _, pattern := range c.Imports {
		if filepath.Base(pattern) != "*.toml" {
			continue
		}
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(config), pattern)
		}
		return filepath.Dir(pattern)
	}
	return filepath.Join(filepath.Dir(config), "conf.d")
}

// programOf returns the path of a runtime's program. It lies beside the executable, which may have several names. Where
// that is not shown, argv may name it in full; k3s and RKE2 keep theirs in their own folders. Otherwise it is in PATH.
func programOf(p hostProcess, config string, files fs.FS) string {
	first, _, _ := strings.Cut(p.argv[0], " ")
	name := filepath.Base(first)
	var places []string
	if p.exe != "" {
		places = append(places, filepath.Join(filepath.Dir(p.exe), name))
	}
	if data, is := strings.CutSuffix(config, "/agent/etc/containerd/config.toml"); is && !filepath.IsAbs(first) {
		places = append(places, filepath.Join(data, "data/current/bin", name), filepath.Join(data, "bin", name))
	}
	for _, place := range places {
		if info, err := fs.Stat(files, inRoot(place)); err == nil && info.Mode().IsRegular() {
			return place
		}
	}
	return first
}

// fileBound bounds what is read of a file that a command line names.
const fileBound = 1 << 20

func readBounded(files fs.FS, name string) ([]byte, error) {
	name = inRoot(name)
	if info, err := fs.Stat(files, name); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fs.ErrInvalid)
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, fileBound))
}

// inRoot returns a path as files of the root name it.
func inRoot(path string) string {
	return cmp.Or(strings.TrimPrefix(filepath.Clean("/"+path), "/"), ".")
}
