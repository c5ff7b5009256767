package datacenter

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The paths of the service. DSP0266 fixes the first; clients learn the others from it.
const (
	rootPath     = "/redfish/v1/"
	systemsPath  = "/redfish/v1/Systems"
	sessionsPath = "/redfish/v1/SessionService/Sessions"
	resetSuffix  = "/Actions/ComputerSystem.Reset"
	ciscoSuffix  = "/Actions/System.Reset"
)

func systemPath(m *Machine) string { return systemsPath + "/" + m.name }

func chassisPath(m *Machine) string { return "/redfish/v1/Chassis/" + m.name }

type object = map[string]any

func link(path string) object { return object{"@odata.id": path} }

// ServeHTTP answers one request: first the faults that hit any answer, then the resource. It is there for tests that
// need no network.
func (b *BMC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m, part := b.route(r.URL.Path)
	answered := b.record(r, b.auth(r), m)
	a := &answer{ResponseWriter: w}
	defer func() { answered(a) }()

	f, healed := b.currentFault()
	whole := f
	if m != nil {
		if own := m.currentFault(); own != (Fault{}) {
			f = own
		}
	}
	a.message = f.Message
	if !b.broken(a, r, f, healed) {
		switch {
		case strings.HasPrefix(r.URL.Path, sessionsPath) && whole.NoSessions:
			a.fail(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		case (r.URL.Path == rootPath || r.URL.Path == strings.TrimSuffix(rootPath, "/")) &&
			!(whole.ClosedRoot && b.auth(r) == "none"):
			a.get(r, root(whole))
		case r.URL.Path == sessionsPath && r.Method == http.MethodPost:
			b.login(a, r, whole)
		case b.auth(r) == "none":
			a.fail(http.StatusUnauthorized, "Base.1.8.NoValidSession")
		case strings.HasPrefix(r.URL.Path, sessionsPath+"/") && r.Method == http.MethodDelete:
			b.logout(a, strings.TrimPrefix(r.URL.Path, sessionsPath+"/"))
		case strings.HasPrefix(r.URL.Path, eventsPath) && !whole.NoEvents:
			b.serveEvents(a, r, whole)
		case r.URL.Path == systemsPath && whole.Flood > 0:
			a.get(r, flood(whole.Flood))
		case strings.HasPrefix(r.URL.Path, floodPath) && whole.Flood > 0:
			a.flood(r.URL.Path, whole.Flood)
		case m != nil && whole.Flood > 0:
			a.fail(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		case r.URL.Path == systemsPath:
			a.get(r, b.systems(r))
		case m != nil && part == "reset":
			m.reset(a, r, f)
		case m != nil && part == "chassis" && f.Chassis == "":
			a.fail(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		case m != nil && part == "chassis" && f.ChassisStatus != 0:
			a.fail(f.ChassisStatus, "Base.1.8.GeneralError")
		case m != nil && part == "chassis":
			a.get(r, m.chassis(f))
		case m != nil:
			if f.NeedsIfMatch {
				a.Header().Set("ETag", m.etag())
			}
			o := m.resource(f)
			a.word, _ = o["PowerState"].(string)
			a.get(r, o)
		default:
			a.fail(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		}
	}
}

// broken lets a fault have its way and reports whether that was the answer.
func (b *BMC) broken(a *answer, r *http.Request, f Fault, healed <-chan struct{}) bool {
	if f.Slow > 0 && !wait(b.dc.ctx, time.After(f.Slow)) {
		panic(http.ErrAbortHandler)
	}
	if f.Delay > 0 && !wait(r.Context(), time.After(f.Delay)) {
		panic(http.ErrAbortHandler)
	}
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Silent:
		wait(r.Context(), healed)
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		a.fail(f.Status, "Base.1.8.GeneralError")
	case f.Redirect != "":
		a.Header().Set("Location", f.Redirect)
		a.fail(http.StatusTemporaryRedirect, "")
	case f.Empty && r.Method == http.MethodGet:
		a.WriteHeader(http.StatusNoContent)
	case f.Body != "" && r.Method == http.MethodGet:
		a.WriteHeader(http.StatusOK)
		_, _ = a.Write([]byte(f.Body))
	case f.SlowBody:
		a.Header().Set("Content-Length", "1000")
		a.WriteHeader(http.StatusOK)
		_, _ = a.Write([]byte(`{"PowerState":"Off","Oem":"`))
		_ = http.NewResponseController(a.ResponseWriter).Flush()
		wait(r.Context(), healed)
		panic(http.ErrAbortHandler)
	case f.HugeBody:
		a.WriteHeader(http.StatusOK)
		_, _ = a.Write([]byte(`{"PowerState":"Off","Oem":"`))
		chunk := []byte(strings.Repeat("x", 1<<15))
		for r.Context().Err() == nil {
			if _, err := a.Write(chunk); err != nil {
				break
			}
		}
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}

// wait reports whether c came before the client gave up or the data centre closed.
func wait[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// route finds the machine a path is about, and which part of it: "system", "reset" (its action) or "chassis".
func (b *BMC) route(path string) (m *Machine, part string) {
	for _, m := range b.fronted() {
		switch path {
		case systemPath(m):
			return m, "system"
		case systemPath(m) + resetSuffix, systemPath(m) + ciscoSuffix:
			return m, "reset"
		case chassisPath(m):
			return m, "chassis"
		}
	}
	return nil, ""
}

// auth says how the request proves who it is: "session", "basic" or "none".
func (b *BMC) auth(r *http.Request) string {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, known := range b.sessions {
			if !b.fault.DeadTokens && subtle.ConstantTimeCompare([]byte(token), []byte(known)) == 1 {
				return "session"
			}
		}
		return "none"
	}
	if user, password, ok := r.BasicAuth(); ok && b.dc.accepts(user, password) {
		if f, _ := b.currentFault(); !f.NoBasic {
			return "basic"
		}
	}
	return "none"
}

func (dc *DataCenter) accepts(user, password string) bool {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	return user == dc.opts.Username && password == dc.opts.Password
}

// SetPassword changes the password of every BMC; open sessions stay.
func (dc *DataCenter) SetPassword(password string) {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	dc.opts.Password = password
}

func (b *BMC) login(a *answer, r *http.Request, f Fault) {
	var body struct{ UserName, Password string }
	switch err := json.NewDecoder(http.MaxBytesReader(a, r.Body, 1<<16)).Decode(&body); {
	case f.SessionStatus != 0:
		a.fail(f.SessionStatus, "Base.1.8.InternalError")
		return
	case err != nil:
		a.fail(http.StatusBadRequest, "Base.1.8.MalformedJSON")
		return
	case !b.dc.accepts(body.UserName, body.Password):
		a.fail(http.StatusUnauthorized, "Base.1.8.ResourceAtUriUnauthorized")
		return
	}
	b.mu.Lock()
	full := len(b.sessions) >= b.dc.opts.SessionSlots
	b.lastID++
	id, token := fmt.Sprint(b.lastID), rand.Text()
	if !full {
		b.sessions[id] = token
		b.notify()
	}
	b.mu.Unlock()
	if full {
		a.fail(http.StatusServiceUnavailable, "Base.1.8.SessionLimitExceeded")
		return
	}
	if !f.NoToken {
		a.Header().Set("X-Auth-Token", token)
	}
	if f.NoLocation {
		a.json(http.StatusCreated, object{"Name": "Session"})
		return
	}
	a.Header().Set("Location", b.url+sessionsPath+"/"+id)
	a.json(http.StatusCreated, object{
		"@odata.id": sessionsPath + "/" + id, "@odata.type": "#Session.v1_3_0.Session", "Id": id, "Name": "Session",
		"UserName": body.UserName,
	})
}

func (b *BMC) logout(a *answer, id string) {
	b.mu.Lock()
	_, known := b.sessions[id]
	delete(b.sessions, id)
	b.notify()
	b.mu.Unlock()
	if !known {
		a.fail(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		return
	}
	a.WriteHeader(http.StatusNoContent)
}

func root(f Fault) object {
	o := object{
		"@odata.id": rootPath, "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "Id": "RootService",
		"Name":           "Root Service",
		"RedfishVersion": "1.15.0", "Systems": link(systemsPath), "SessionService": link("/redfish/v1/SessionService"),
		"Links": object{"Sessions": link(sessionsPath)},
	}
	if !f.NoEvents {
		o["EventService"] = link(eventsPath)
	}
	if f.NoSessions {
		delete(o, "SessionService")
		o["Links"] = object{}
	}
	return o
}

// systems is the collection, or one page of it.
func (b *BMC) systems(r *http.Request) object {
	first, _ := strconv.Atoi(r.URL.Query().Get("$skip"))
	machines := b.fronted()
	first = min(max(first, 0), len(machines))
	last := len(machines)
	if size := b.dc.opts.PageSize; size > 0 {
		last = min(first+size, last)
	}
	members := []object{}
	for _, m := range machines[first:last] {
		members = append(members, link(systemPath(m)))
	}
	o := object{
		"@odata.id": systemsPath, "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
		"Name":                "Systems",
		"Members@odata.count": len(machines), "Members": members,
	}
	if last < len(machines) {
		o["Members@odata.nextLink"] = fmt.Sprintf("%s?$skip=%d", systemsPath, last)
	}
	return o
}

const floodPath = systemsPath + "/flood-"

// flood is a collection of very many systems.
func flood(systems int) object {
	members := make([]object, systems)
	for i := range members {
		members[i] = link(floodPath + strconv.Itoa(i))
	}
	return object{"Members": members}
}

// flood answers with one of so many: a client that keeps what all of them say keeps very much.
func (a *answer) flood(path string, of int) {
	a.Header().Set("Content-Type", "application/json")
	a.WriteHeader(http.StatusOK)
	w := bufio.NewWriter(a)
	_, _ = fmt.Fprintf(w, `{"Id":%q,"PowerState":"On","SerialNumber":"`, path)
	for range 1 << 20 / 16 / of {
		_, _ = w.WriteString("0123456789abcdef")
	}
	_, _ = fmt.Fprintf(w, `","Links":{"Chassis":["/"`)
	for i := range 320_000 / of {
		_, _ = fmt.Fprintf(w, `,"/%d"`, i)
	}
	_, _ = w.WriteString("]}}")
	_ = w.Flush()
}

// currentFault is that of the request which asks for it.
func (m *Machine) currentFault() Fault {
	m.mu.Lock()
	fault, next := m.fault, m.nextFault
	m.mu.Unlock()
	if next != nil {
		return next()
	}
	return fault
}

func (m *Machine) resource(f Fault) object {
	o := object{
		"@odata.id": systemPath(m), "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "Id": m.name,
		"Name":       m.name,
		"SystemType": "Physical", "UUID": m.uuid, "SerialNumber": m.serial, "PowerState": string(m.State()),
		"Status":           object{"State": "Enabled", "Health": "OK"},
		"ProcessorSummary": object{"Count": 2, "LogicalProcessorCount": 16},
	}
	switch {
	case f.PowerWord != "":
		o["PowerState"] = f.PowerWord
	case f.NoPowerWord:
		o["PowerState"] = nil
	}
	switch {
	case f.SystemUUID != "":
		o["UUID"] = f.SystemUUID
	case f.NoUUID:
		delete(o, "UUID")
	}
	switch {
	case f.Serial != "":
		o["SerialNumber"] = f.Serial
	case f.NoSerial:
		o["SerialNumber"] = ""
	}
	if !f.NoAction {
		words := []string{"On", "ForceOn", "ForceRestart"}
		if f.PushButton {
			words = []string{"PushPowerButton", "ForceRestart"}
		}
		if !f.NoForceOff {
			words = append(words, "ForceOff")
		}
		o["Actions"] = object{
			"#ComputerSystem.Reset": object{"target": systemPath(m) + resetSuffix,
				"ResetType@Redfish.AllowableValues": words}}
		if f.SystemReset {
			o["Actions"] = object{
				"#System.Reset": object{"Target": systemPath(m) + ciscoSuffix,
					"ResetType@Redfish.AllowableValues": words}}
		}
	}
	switch {
	case f.Chassis == "":
	case f.SystemReset:
		o["Links"] = object{"Chassis": []string{chassisPath(m)}}
	default:
		var all []object
		for _, path := range strings.Fields(f.ChassisLinks) {
			all = append(all, link(path))
		}
		o["Links"] = object{"Chassis": append(all, link(chassisPath(m)))}
	}
	if f.UpdateStatus != "" {
		o["Oem"] = object{"Contoso": object{"UpdateStatus": f.UpdateStatus}}
	}
	if f.Sleep != "" {
		o["Oem"] = object{"Contoso": object{"AcpiState": f.Sleep}}
	}
	return o
}

func (m *Machine) chassis(f Fault) object {
	systems := []object{link(systemPath(m))}
	if f.ChassisShared {
		systems = append(systems, link(systemsPath+"/another"))
	}
	o := object{
		"@odata.id": chassisPath(m), "@odata.type": "#Chassis.v1_20_0.Chassis", "Id": m.name, "Name": m.name,
		"ChassisType": cmp.Or(f.ChassisType, "RackMount"),
		"Links":       object{"ComputerSystems": systems},
	}
	switch f.Chassis {
	case "none":
	case "true":
		o["PowerState"] = string(m.State())
	default:
		o["PowerState"] = f.Chassis
	}
	return o
}

// etag changes with the machine's power.
func (m *Machine) etag() string { return fmt.Sprintf("W/%q", string(m.State())+m.BootID()) }

// reset is the action. What is asked of a machine that is there already is answered with 409, as some BMCs do.
func (m *Machine) reset(a *answer, r *http.Request, f Fault) {
	if r.Method != http.MethodPost {
		a.fail(http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed")
		return
	}
	var body struct{ ResetType string }
	if err := json.NewDecoder(http.MaxBytesReader(a, r.Body, 1<<16)).Decode(&body); err != nil {
		a.fail(http.StatusBadRequest, "Base.1.8.MalformedJSON")
		return
	}
	a.word = body.ResetType
	if match := r.Header.Get("If-Match"); f.NeedsIfMatch && match != m.etag() {
		status := http.StatusPreconditionFailed
		if match == "" {
			status = http.StatusPreconditionRequired
		}
		a.fail(status, "Base.1.8.PreconditionRequired")
		return
	}
	if f.ActionLost {
		defer panic(http.ErrAbortHandler)
	}
	accepted := true
	switch {
	case f.ActionStatus != 0:
		a.fail(f.ActionStatus, "Base.1.8.GeneralError")
		return
	case body.ResetType == "ForceOff" && f.StaysOn:
	case body.ResetType == "ForceOff" && f.StaysPoweringOff:
		m.mu.Lock()
		if m.state == On {
			m.state = PoweringOff
		}
		m.mu.Unlock()
	case body.ResetType == "ForceOff":
		accepted = m.request(Off, m.dc.opts.PowerOffDelay)
	case body.ResetType == "PushPowerButton" && f.PushButton && m.State() != Off:
		accepted = m.request(Off, m.dc.opts.PowerOffDelay)
	case body.ResetType == "PushPowerButton" && f.PushButton:
		accepted = m.request(On, m.dc.opts.PowerOnDelay)
	case f.PushButton && body.ResetType != "ForceOff":
		a.fail(http.StatusBadRequest, "Base.1.8.ActionParameterNotSupported")
		return
	case body.ResetType == "On", body.ResetType == "ForceOn":
		accepted = m.request(On, m.dc.opts.PowerOnDelay)
	case body.ResetType == "ForceRestart":
		m.CutPower()
		m.PowerOn()
	default:
		a.fail(http.StatusBadRequest, "Base.1.8.ActionParameterNotSupported")
		return
	}
	if !accepted {
		a.fail(http.StatusConflict, "Base.1.8.ResourceInUse")
		return
	}
	a.WriteHeader(http.StatusNoContent)
}

// answer remembers what it was given.
type answer struct {
	http.ResponseWriter
	status  int
	at      time.Time // when its status was written
	word    string    // see Request
	message string    // of every error
}

func (a *answer) WriteHeader(status int) {
	a.status, a.at = status, time.Now()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) json(status int, v any) {
	a.Header().Set("Content-Type", "application/json")
	a.Header().Set("OData-Version", "4.0")
	a.WriteHeader(status)
	_ = json.NewEncoder(a).Encode(v)
}

func (a *answer) get(r *http.Request, v any) {
	if r.Method != http.MethodGet {
		a.fail(http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed")
		return
	}
	a.json(http.StatusOK, v)
}

func (a *answer) fail(status int, message string) {
	a.json(status, object{"error": object{"code": cmp.Or(a.message, message), "message": http.StatusText(status)}})
}
