// Package providercheck checks a description of a device family or of a storage system (providers/rest): its cases, and
// each change of one thing in them. A device family must also pass the checks of providers/conformance against a server
// that replays the cases. It asks no device.
package providercheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/cmd/internal/storageapi"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/conformance"
	"github.com/forcefence/forcefence/providers/rest"
)

// Report says what was checked.
type Report struct {
	rest.Report
	System  bool     // a storage system was checked
	Checks  int      // of conformance
	LeftOut []string // checks that were not made, and why
}

// CheckDescription returns what is wrong with a description. It runs the conformance checks only if the cases have no
// fault. It blocks for some seconds.
func CheckDescription(ctx context.Context, text []byte) (Report, rest.Faults) {
	if rest.IsReading(text) {
		cases, bad := storageapi.CheckCases(text)
		return Report{Report: cases, System: true}, bad
	}
	cases, bad := rest.CheckCases(text)
	report := Report{Report: cases}
	if len(bad) > 0 {
		return report, bad
	}
	f, bad := rest.Parse(text)
	if f == nil {
		return report, bad
	}
	f = f.WithBasicLogin()
	d, err := newDevice(f)
	if err != nil {
		return report, rest.Faults{{Line: 1, Path: "cases", Text: err.Error()}}
	}
	o := conformance.Options{
		Without:  d.without(),
		NoProxy:  "the server is on this machine, and no description changes how the network is used",
		NoLogIns: "it does not log in", Timeout: 20 * time.Second, Settle: 3 * time.Second,
	}
	for _, c := range conformance.Checks() {
		if ctx.Err() != nil {
			return report, rest.Faults{{Line: 1, Text: ctx.Err().Error()}}
		}
		if ok, why := c.Applies(o); !ok {
			report.LeftOut = append(report.LeftOut, c.Name+": "+why)
			continue
		}
		switch err := runCheck(ctx, c, f, o); {
		case errors.Is(err, conformance.ErrLeftOut):
			_, why, _ := strings.Cut(err.Error(), ": ")
			report.LeftOut = append(report.LeftOut, c.Name+": "+why)
			continue
		case err != nil:
			bad = append(bad, rest.Fault{Line: 1, Text: fmt.Sprintf("the check %q: %v", c.Name, err)})
		}
		report.Checks++
	}
	return report, bad
}

// runCheck makes one check against a server of its own.
func runCheck(ctx context.Context, c conformance.Check, f *rest.Family, o conformance.Options) error {
	d, err := newDevice(f)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "forcefence-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	d.password = filepath.Join(folder, "password")
	if err := d.writePassword(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Close()
	cfg := f.NewConfig()
	address, id := "http://"+listener.Addr().String(), d.target
	cfg.OffDelay = 0 // the checks are about the description
	if cfg.Values = f.SampleValues(); f.AddressIDs {
		id = strings.TrimSuffix(address+"/"+id, "/")
	} else {
		cfg.Address = address
	}
	if name := f.Login.Address; name != "" {
		cfg.Values[name] = address
	}
	if f.Login.Kind != "none" {
		if cfg.PasswordFile = d.password; !slices.Contains(cfg.Unused(), "username") {
			cfg.Username = "user"
		}
	}
	for _, p := range cfg.Validate() {
		return fmt.Errorf("%s: %s", p.Path, p.Text)
	}
	p, err := cfg.New(providers.Options{Name: "check", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = p.(providers.Closer).Close(context.WithoutCancel(ctx)) }()
	b := &conformance.Bench{
		Provider: p,
		Target:   providers.Target{Node: "node", ID: id, SystemUUID: d.uuid, Addresses: d.addresses},
		Running:  d.runs, SetPower: d.setPower, SetFault: d.setFault, Requests: d.requests.All,
	}
	if f.Login.Kind != "none" {
		b.LogIns = d.countLogIns
	}
	err = c.Run(ctx, b, o)
	d.setFault(conformance.NoFault)
	return err
}

// device replays the cases of one machine: the first of each state.
type device struct {
	family    *rest.Family
	target    string // its ID
	uuid      string
	addresses providers.Addresses
	shows     map[string]rest.Recorded // by state
	known     []rest.Sent
	password  string // the file

	mu      sync.Mutex // guards what follows
	state   string     // a key of shows
	fault   conformance.Fault
	changed chan struct{} // closed when the fault changes
	logIns  int
	secrets int // how many passwords there were

	requests conformance.Requests
}

func newDevice(f *rest.Family) (*device, error) {
	d := &device{family: f, shows: map[string]rest.Recorded{}, state: "On", changed: make(chan struct{})}
	all := f.Recorded()
	off := slices.IndexFunc(all, func(r rest.Recorded) bool { return r.Want.State == "Off" })
	if off < 0 {
		return nil, errors.New("no case wants Off")
	}
	d.target, d.uuid, d.addresses = all[off].ID, all[off].Want.UUID, all[off].Addresses
	for _, r := range all {
		if _, has := d.shows[r.Want.State]; !has && r.ID == d.target && r.Want.Error == "" {
			d.shows[r.Want.State] = r
		}
	}
	if _, ok := d.shows["On"]; !ok {
		return nil, errors.New("no case wants On for the machine of the first case that wants Off")
	}
	var err error
	if d.known, err = f.RequestsOf(all[off]); err != nil {
		return nil, err
	}
	for _, q := range d.known {
		if _, ok := all[off].Answers[q.Name]; !ok {
			return nil, fmt.Errorf("the case %q has no answer to %s: add those to the requests of powerOff and "+
				"powerOn, and of a log-in", all[off].Name, q.Name)
		}
	}
	return d, nil
}

// without returns the faults that the cases cannot show.
func (d *device) without() map[conformance.Fault]string {
	out := map[conformance.Fault]string{}
	for state, fault := range map[string]conformance.Fault{
		"Changing": conformance.StaysChanging, "Unknown": conformance.StrangeWord,
	} {
		if _, ok := d.shows[state]; !ok {
			out[fault] = "no case wants " + state + " without an error"
		}
	}
	if d.uuid == "" {
		out[conformance.OtherMachine] = "the device reports no UUID"
	}
	if d.family.Login.Kind == "none" {
		out[conformance.Denied] = "it does not log in"
	}
	return out
}

func (d *device) runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state == "On"
}

func (d *device) setPower(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state = "Off"; on {
		d.state = "On"
	}
}

func (d *device) setFault(f conformance.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	healed := d.fault == conformance.Denied && f == conformance.NoFault
	d.fault = f
	close(d.changed)
	d.changed = make(chan struct{})
	if healed {
		d.secrets++
		_ = d.writePassword() // the file was written before
	}
}

// writePassword writes a new password: a refused one is not sent again.
func (d *device) writePassword() error {
	return os.WriteFile(d.password, fmt.Appendf(nil, "password-%d", d.secrets), 0o600)
}

func (d *device) countLogIns() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.logIns
}

// ServeHTTP answers one request as the machine's case says.
func (d *device) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := new(bytes.Buffer)
	_, _ = body.ReadFrom(http.MaxBytesReader(w, r.Body, 1<<20))
	q, known := d.requestOf(r, body.Bytes())
	acts := q.Method != http.MethodGet && q.Purpose != rest.ForLogin
	d.mu.Lock()
	fault, changed := d.fault, d.changed
	if token := d.family.Login.Kind == "token"; token == (q.Purpose == rest.ForLogin) {
		d.logIns++
	}
	d.mu.Unlock()
	d.requests.Add(acts)
	switch fault {
	case conformance.Unreachable:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case conformance.Denied:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case conformance.Silent:
		select {
		case <-r.Context().Done():
		case <-changed:
		}
		return
	case conformance.Slow:
		<-time.After(conformance.SlowBy)
	}
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	shown := d.state
	if fault == conformance.StrangeWord {
		shown = "Unknown"
	}
	a, ok := d.shows[shown].Answers[q.Name]
	if !ok {
		a = d.shows["Off"].Answers[q.Name]
	}
	if q.Last {
		switch {
		case fault == conformance.StaysOn:
		case fault == conformance.StaysChanging:
			d.state = "Changing"
		case q.Purpose == rest.ForOff:
			d.state = "Off"
		case q.Purpose == rest.ForOn:
			d.state = "On"
		}
	}
	text, err := json.Marshal(a.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if fault == conformance.OtherMachine {
		const another = "0f0f0f0f-1e1e-4d4d-8c8c-2b2b2b2b2b2b"
		text = bytes.ReplaceAll(text, []byte(d.uuid), []byte(another))
	}
	for name, v := range a.Header {
		w.Header().Set(name, v)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.Status)
	if a.Status != http.StatusNoContent {
		_, _ = w.Write(text)
	}
}

// requestOf returns which of the description's requests this is. Of two that differ in their bodies alone, the body
// decides.
func (d *device) requestOf(r *http.Request, body []byte) (rest.Sent, bool) {
	path := r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	for _, q := range d.known {
		if q.Method == r.Method && q.Path == path && (q.Purpose == rest.ForLogin || bytes.Equal(q.Body, body)) {
			return q, true
		}
	}
	return rest.Sent{Method: r.Method}, false
}

// Lines returns what a person is shown of a report.
func (r Report) Lines() []string {
	if r.System {
		return []string{fmt.Sprintf("%d cases and %d changes of them: none that must not permits a policy to act",
			r.Cases, r.Mutations)}
	}
	out := []string{fmt.Sprintf("%d cases and %d changes of them: none that must not be is Off", r.Cases, r.Mutations),
		fmt.Sprintf("%d checks of the conformance suite passed", r.Checks)}
	for _, why := range r.LeftOut {
		out = append(out, "not checked: "+why)
	}
	return out
}
