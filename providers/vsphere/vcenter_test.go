package vsphere_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/vsphere"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is far more than any call here takes that is not meant to run out of time: other packages' tests share the
// machine.
const timeout = 45 * time.Second

const user = "forcefence@vsphere.local"

// vcenter is govmomi's simulator behind our TLS server, which can fail on request. It speaks as a vCenter does. The
// server adds what the simulator cannot do, such as a missing right or a broken answer.
type vcenter struct {
	model  *simulator.Model
	server *httptest.Server
	dir    string // of password and ca.pem

	mu       sync.Mutex // guards what follows
	password string
	ended    map[string]bool // sessions, by cookie, that are not known any more
	alive    map[string]bool // those that are
	fault    providertest.Fault
	changed  chan struct{} // closed when fault changes
	calls    map[string]int
	logIns   int // ever
	requests providertest.Requests
	faults   map[string]types.BaseMethodFault             // by method, in place of its answer
	edit     func(method string, answer []byte) []byte    // of each answer; nil: nothing
	serve    func(w http.ResponseWriter, r *http.Request) // in place of all
}

// newVCenter starts a vCenter with two hosts and that many VMs, all of them on.
func newVCenter(t testing.TB, machines int) *vcenter {
	t.Helper()
	m := simulator.VPX()
	m.Host, m.ClusterHost, m.Machine = 0, 2, machines
	return start(t, m)
}

// start starts what the model describes.
func start(t testing.TB, model *simulator.Model) *vcenter {
	t.Helper()
	v := &vcenter{
		model: model, dir: t.TempDir(), password: "hunter2", ended: map[string]bool{}, alive: map[string]bool{},
		changed: make(chan struct{}), calls: map[string]int{}, faults: map[string]types.BaseMethodFault{},
	}
	if err := v.model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.model.Remove)
	svc := v.model.Service
	svc.Listen = &url.URL{User: url.UserPassword(user, "checked by ValidLogin")}
	svc.RegisterSDK(v.model.Map(), "/sdk/vimService")
	v.model.Map().SessionManager().ValidLogin = func(l *types.Login) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return l.UserName == user && l.Password == v.password
	}
	v.model.Map().Handler = func(_ *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return nil, v.faults[m.Name]
	}
	v.server = httptest.NewUnstartedServer(v)
	// handshakes that are meant to fail
	v.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	authority := kit.NewAuthority("vcenter") // its keys cost a tenth of httptest's
	v.server.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Server("127.0.0.1").TLS()}}
	v.server.StartTLS()
	t.Cleanup(v.server.Close)
	t.Cleanup(func() { v.setFault(providertest.NoFault) }) // releases waiting requests
	v.write(t, "password", []byte(v.password+"\n"))
	v.write(t, "ca.pem", authority.Cert)
	return v
}

var soapMethod = regexp.MustCompile(`<Body[^>]*><(\w+)`)

func (v *vcenter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // then the server sees when the client goes away
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	method := ""
	if m := soapMethod.FindSubmatch(body); m != nil {
		method = string(m[1])
	}
	v.mu.Lock()
	fault, changed, edit, serve := v.fault, v.changed, v.edit, v.serve
	v.calls[method]++
	v.requests.Add(method == "PowerOffVM_Task" || method == "PowerOnVM_Task")
	if method == "Login" {
		v.logIns++
	}
	if c, err := r.Cookie(soap.SessionCookieName); err == nil && v.ended[c.Value] {
		r.Header.Del("Cookie")
	}
	v.mu.Unlock()
	if serve != nil {
		serve(w, r)
		return
	}
	if providertest.PlayFault(r, fault, changed) {
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	v.model.Service.ServeMux.ServeHTTP(answer, r)
	v.mu.Lock()
	for _, c := range answer.Result().Cookies() {
		v.alive[c.Value] = true
	}
	if c, err := r.Cookie(soap.SessionCookieName); err == nil && method == "Logout" {
		delete(v.alive, c.Value)
	}
	v.mu.Unlock()
	out := answer.Body.Bytes()
	if edit != nil {
		out = edit(method, out)
	}
	for k, values := range answer.Header() {
		w.Header()[k] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(out)
}

// count returns how many of a method's requests came, since the last count.
func (v *vcenter) count(method string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.calls[method]
	v.calls[method] = 0
	return n
}

func (v *vcenter) allLogIns() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.logIns
}

// sessions returns how many sessions there are.
func (v *vcenter) sessions() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.alive)
}

// endSessions makes vCenter forget all sessions.
func (v *vcenter) endSessions() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for c := range v.alive {
		v.ended[c] = true
	}
	clear(v.alive)
}

// answer makes a method answer with that fault; nil: as it does.
func (v *vcenter) answer(method string, f types.BaseMethodFault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.faults[method] = f; f == nil {
		delete(v.faults, method)
	}
}

// change sets edit and serve.
func (v *vcenter) change(edit func(method string, answer []byte) []byte,
	serve func(http.ResponseWriter, *http.Request)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.edit, v.serve = edit, serve
}

func (v *vcenter) setFault(f providertest.Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fault = f
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *vcenter) setPassword(password string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.password = password
}

func (v *vcenter) write(t testing.TB, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(v.dir, file), content, 0o600); err != nil {
		t.Error(err)
	}
}

// vm is one VM of the simulator.
type vm struct {
	v *vcenter
	*simulator.VirtualMachine
}

// vms returns all VMs, in the order of their names.
func (v *vcenter) vms() (out []vm) {
	for _, e := range v.model.Map().All("VirtualMachine") {
		out = append(out, vm{v, e.(*simulator.VirtualMachine)})
	}
	for i := range out { // few
		for j := i; j > 0 && out[j].Name < out[j-1].Name; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

func (m vm) set(property string, value any) { m.v.set(m.VirtualMachine, property, value) }

// set changes one property, as vCenter does when it learns something: it sends the update to those who wait.
func (v *vcenter) set(obj mo.Reference, property string, value any) {
	ctx := v.model.Service.Context
	ctx.WithLock(obj, func() { ctx.Update(obj, []types.PropertyChange{{Name: property, Val: value}}) })
}

func (m vm) setHost(property string, value any) {
	m.v.set(m.v.model.Map().Get(*m.Runtime.Host), property, value)
}

func (m vm) power(word types.VirtualMachinePowerState) { m.set("runtime.powerState", word) }

// protect sets whether vSphere HA looks after the VM.
func (m vm) protect(yes bool) {
	m.set("runtime.dasVmProtection", types.VirtualMachineRuntimeInfoDasProtectionState{DasProtected: yes})
}

func (m vm) word() (word types.VirtualMachinePowerState) {
	ctx := m.v.model.Service.Context
	ctx.WithLock(m.VirtualMachine, func() { word = m.Runtime.PowerState })
	return word
}

// until waits for the VM's power, since a task takes its time.
func (m vm) until(t testing.TB, want types.VirtualMachinePowerState) {
	t.Helper()
	kit.Until(t, m.Name+" "+string(want), func() bool { return m.word() == want })
}

func (m vm) target() providers.Target {
	return providers.Target{Node: m.Name, SystemUUID: m.Config.Uuid}
}

// stuck is a VM that says yes to being powered off, and goes on.
type stuck struct{ *simulator.VirtualMachine }

func (s *stuck) PowerOffVMTask(ctx *simulator.Context, _ *types.PowerOffVM_Task) soap.HasFault {
	task := simulator.CreateTask(s.VirtualMachine, "powerOff",
		func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
			return nil, nil
		})
	return &methods.PowerOffVM_TaskBody{Res: &types.PowerOffVM_TaskResponse{Returnval: task.Run(ctx)}}
}

// config is the provider's for this vCenter.
func (v *vcenter) config() *vsphere.Config {
	c := &vsphere.Config{}
	c.Address, c.Username = v.server.URL, user
	c.PasswordFile, c.CAFile = filepath.Join(v.dir, "password"), filepath.Join(v.dir, "ca.pem")
	return c
}

// open makes a provider for a caller who closes it.
func open(t testing.TB, c *vsphere.Config, now func() time.Time) *vsphere.Provider {
	t.Helper()
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := vsphere.New(*c, providers.Options{Name: "vc", Log: slog.New(slog.DiscardHandler), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// provider makes one that ends with the test, and leaves no session.
func (v *vcenter) provider(t testing.TB) *vsphere.Provider {
	t.Helper()
	p := open(t, v.config(), nil)
	t.Cleanup(func() {
		v.setFault(providertest.NoFault)
		v.change(nil, nil)
		v.answer("Logout", nil)
		shut(t, p)
		if n := v.sessions(); n != 0 {
			t.Errorf("Close left %d sessions", n)
		}
	})
	return p
}

func shut(t testing.TB, p providers.Closer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// many asks for each VM in a batch that is too large to look VMs up one by one.
type many struct{ *vsphere.Provider }

func (m many) with(t []providers.Target) []providers.Target {
	for _, u := range []string{"a", "b", "c", "d", "e"} {
		t = append(t, providers.Target{Node: u, SystemUUID: "11111111-2222-4333-8444-55555555555" + u})
	}
	return t
}

func (m many) States(ctx context.Context, targets []providers.Target) (map[string]providers.Observation, error) {
	return m.Provider.States(ctx, m.with(targets))
}

func (m many) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	all, err := m.States(ctx, []providers.Target{t})
	if obs, ok := all[t.Key()]; ok {
		return obs, nil
	}
	var each providers.Unanswered
	if errors.As(err, &each) {
		return providers.Observation{}, each[t.Key()]
	}
	return providers.Observation{}, err
}

// both are the ways to ask.
func both(p *vsphere.Provider) map[string]providers.Provider {
	return map[string]providers.Provider{"one": p, "many": many{p}}
}

func ask(t testing.TB, p providers.Provider, of providers.Target) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return providers.Ask(ctx, p, "vc", of, providers.Now)
}

// expect asks, and wants this state in these words and no error.
func expect(t testing.TB, p providers.Provider, of providers.Target, state providers.PowerState, raw string) {
	t.Helper()
	if a := ask(t, p, of); a.State != state || a.Raw != raw || a.Err != nil {
		t.Errorf("got %s (%q), %v; want %s (%q)", a.State, a.Raw, a.Err, state, raw)
	}
}

func power(t testing.TB, f func(context.Context, providers.Target, func() error) error, of providers.Target) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return f(ctx, of, providertest.AllowSend)
}
