// Package cloud is the part of Amazon EC2 that providers/ec2 speaks to, as its public API reference describes it: the
// query protocol with XML answers, states and how long they take, reasons and times of transitions, errors, throttling,
// zones, an impaired one, answers that are behind; and of STS the two calls that give credentials. It imports the
// standard library and the SDK's signer.
//
// It promises: a request counts only with a right signature, of credentials that are in force. One missing id, or one
// id in an impaired zone, fails a whole call. An instance runs until the moment at which its state becomes stopped or
// terminated, whatever the API reports. The reports about one instance may lag behind, as a whole.
package cloud

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault is what is wrong with the service. The zero value is healthy.
type Fault struct {
	Delay    time.Duration // every answer waits this long
	Silent   bool          // no answer, until the client gives up or the fault is replaced
	Drop     bool          // the connection closes without an answer
	Half     bool          // an answer breaks off in its middle
	Status   int           // every answer is this status, with no XML in it
	Code     string        // every answer is this error: RequestLimitExceeded
	Throttle int           // so many requests are answered with RequestLimitExceeded, then no more
	Unnamed  bool          // the error about missing ids does not name them
	Impaired string        // the zone whose instances fail every call that names one; with Hangs no answer comes
	Hangs    bool

	Denied    string // this action is answered with UnauthorizedOperation; "*": every one
	StaysOn   bool   // a stop is accepted, and nothing happens
	StaysHalf bool   // a stop is accepted, and does not come to its end
}

// Key is a set of credentials.
type Key struct{ ID, Secret, Token string }

// Cloud is one account in some regions, behind one address. It is safe for concurrent use.
type Cloud struct {
	url    string
	server *http.Server
	done   chan struct{} // closed when the server has ended

	mu        sync.Mutex // guards what follows
	fault     Fault
	changed   chan struct{}     // closed when the fault is replaced
	zones     map[string]string // the region of each zone
	instances map[string]*Instance
	keys      map[string]Key   // in force, by ID
	roles     map[string]trust // by ARN
	calls     []string         // region and action of each, as they came
	made      int
}

// trust is who may assume a role: who shows this token, or, with "", who has credentials and names this external id.
type trust struct{ token, externalID string }

// Start opens a cloud with these zones, each with its region. Close ends it.
func Start(zones map[string]string) (*Cloud, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		url: "http://" + listener.Addr().String(), done: make(chan struct{}), changed: make(chan struct{}),
		zones:     maps.Clone(zones),
		instances: map[string]*Instance{}, keys: map[string]Key{}, roles: map[string]trust{},
	}
	c.server = &http.Server{Handler: http.HandlerFunc(c.serve), ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(c.done)
		_ = c.server.Serve(listener) // ends with Close
	}()
	return c, nil
}

// Close ends all connections and waits for the server.
func (c *Cloud) Close() error {
	c.SetFault(Fault{})
	err := c.server.Close()
	<-c.done
	return err
}

// URL is the endpoint of EC2 and STS in every region.
func (c *Cloud) URL() string { return c.url }

// SetFault replaces the fault at once.
func (c *Cloud) SetFault(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
	close(c.changed)
	c.changed = make(chan struct{})
}

// NewKey makes credentials that are in force until Revoke.
func (c *Cloud) NewKey() Key { c.mu.Lock(); defer c.mu.Unlock(); return c.newKey("") }

func (c *Cloud) newKey(token string) Key {
	c.made++
	k := Key{fmt.Sprintf("AKIA%016d", c.made), fmt.Sprintf("wJalrXUtnFEMI/secret/%d", c.made), token}
	c.keys[k.ID] = k
	return k
}

// Revoke takes all credentials out of force.
func (c *Cloud) Revoke() { c.mu.Lock(); defer c.mu.Unlock(); clear(c.keys) }

// AddRole makes a role: for a client with that web identity token, or, if it is "", for one that has credentials and
// names the external id.
func (c *Cloud) AddRole(arn, token, externalID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roles[arn] = trust{token, externalID}
}

// Calls counts the requests so far: of an action, in a region; "" is any.
func (c *Cloud) Calls(region, action string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if r, a, _ := strings.Cut(call, " "); (region == "" || r == region) && (action == "" || a == action) {
			n++
		}
	}
	return n
}

// Actions are the actions of all requests so far, in the order in which they came.
func (c *Cloud) Actions() (of []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		_, action, _ := strings.Cut(call, " ")
		of = append(of, action)
	}
	return of
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/" {
		reject(w, http.StatusBadRequest, "InvalidRequest", "The request received was invalid.")
		return
	}
	action := form.Get("Action")
	who := readScope(r)
	c.mu.Lock()
	c.calls = append(c.calls, who.region+" "+action)
	f, changed := c.fault, c.changed
	if c.fault.Throttle > 0 {
		c.fault.Throttle--
	}
	hangs := f.Silent || f.Hangs && c.impaired(form)
	c.mu.Unlock()

	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		case <-changed:
		}
	}
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case hangs:
		wait(time.Hour)
		panic(http.ErrAbortHandler)
	case f.Delay > 0:
		time.Sleep(f.Delay) // an answer that is slow comes all the same
	}
	switch {
	case f.Status != 0:
		http.Error(w, "<html>busy</html>", f.Status)
		return
	case f.Code != "":
		reject(w, statusOf(f.Code), f.Code, "It is as it is.")
		return
	case f.Throttle > 0:
		reject(w, http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
		return
	}
	a, no := c.answer(r, body, form, who)
	if no != nil {
		reject(w, statusOf(no.Code), no.Code, no.Message)
		return
	}
	out, err := xml.Marshal(a)
	if err != nil {
		panic(err) // a type of ours
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	if f.Half {
		w.Header().Set("Content-Length", strconv.Itoa(len(out)))
		out = out[:len(out)/2]
	}
	_, _ = w.Write(out) // the client may have gone
}

// refusal is an error that a client gets.
type refusal struct{ Code, Message string }

func statusOf(code string) int {
	switch code {
	case "RequestLimitExceeded", "Unavailable", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "InternalError":
		return http.StatusInternalServerError
	case "UnauthorizedOperation", "AccessDenied":
		return http.StatusForbidden
	case "AuthFailure":
		return http.StatusUnauthorized
	}
	return http.StatusBadRequest
}

func reject(w http.ResponseWriter, status int, code, message string) {
	of := []any{element("Code", code), element("Message", message)}
	out, _ := xml.Marshal(element("Response", element("Errors", element("Error", of...)), // a type of ours
		element("Error", of...), // STS has it here
		element("RequestID", "c6104cbe-af31-11e0-8154-cbc7ccf896c7")))
	w.WriteHeader(status)
	_, _ = w.Write(out) // the client may have gone
}

// impaired reports whether a request names an instance of the impaired zone. The lock is held.
func (c *Cloud) impaired(form url.Values) bool {
	return c.fault.Impaired != "" && slices.ContainsFunc(list(form, "InstanceId"), func(id string) bool {
		i := c.instances[id]
		return i != nil && i.zone == c.fault.Impaired
	})
}

// list reads InstanceId.1, InstanceId.2 and so on.
func list(form url.Values, name string) (out []string) {
	for n := 1; form.Has(fmt.Sprintf("%s.%d", name, n)); n++ {
		out = append(out, form.Get(fmt.Sprintf("%s.%d", name, n)))
	}
	return out
}

// answer is what an action gives, or why it is refused.
func (c *Cloud) answer(r *http.Request, body []byte, form url.Values, who scope) (answer, *refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	action := form.Get("Action")
	if action != "AssumeRoleWithWebIdentity" {
		if no := c.authenticate(r, body, who); no != nil {
			return answer{}, no
		}
	}
	if c.fault.Denied == "*" || c.fault.Denied == action {
		return answer{}, &refusal{"UnauthorizedOperation", "You are not authorized to perform this operation. User: " +
			"arn:aws:sts::123456789012:assumed-role/secret-role/x " +
			"is not authorized. Encoded authorization failure message: " + strings.Repeat("k9M", 100)}
	}
	now := time.Now()
	switch action {
	case "AssumeRole", "AssumeRoleWithWebIdentity":
		return c.assume(action, form, now)
	case "DescribeAvailabilityZones":
		return c.describeZones(who.region, form.Get("AllAvailabilityZones") == "true"), nil
	case "DescribeSpotInstanceRequests":
		return c.describeSpots(who.region, list(form, "SpotInstanceRequestId"), now)
	case "DescribeInstances", "StopInstances", "StartInstances", "TerminateInstances":
	default:
		return answer{}, &refusal{"InvalidAction", "The action " + action + " is not valid for this web service."}
	}
	of, no := c.find(who.region, list(form, "InstanceId"))
	if no != nil {
		return answer{}, no
	}
	if c.impaired(form) {
		return answer{}, &refusal{"Unavailable", "The service is unavailable. Please try again shortly."}
	}
	if action == "DescribeInstances" {
		return c.describe(of, now), nil
	}
	return c.change(action, form, of, now)
}

// find returns the instances of a region, or why not: one that is not there fails all.
func (c *Cloud) find(region string, ids []string) (of []*Instance, _ *refusal) {
	if len(ids) == 0 || len(ids) > 1000 {
		return nil, &refusal{"InvalidParameterValue", "The number of instance IDs is not from 1 to 1000."}
	}
	var missing []string
	for _, id := range ids {
		if i := c.instances[id]; i != nil && c.zones[i.zone] == region && !i.vanished(time.Now()) {
			of = append(of, i)
		} else {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) == 0:
		return of, nil
	case c.fault.Unnamed:
		return nil, &refusal{"InvalidInstanceID.NotFound", "Some of the instance IDs do not exist"}
	case len(missing) == 1:
		return nil, &refusal{"InvalidInstanceID.NotFound", "The instance ID '" + missing[0] + "' does not exist"}
	}
	return nil,
		&refusal{"InvalidInstanceID.NotFound", "The instance IDs '" + strings.Join(missing, ", ") + "' do not exist"}
}

const ec2Space = "http://ec2.amazonaws.com/doc/2016-11-15/ " // of the answers' names

// answer is an XML element.
type answer struct {
	XMLName xml.Name
	Text    string   `xml:",chardata"`
	Within  []answer `xml:",any"`
}

// element makes one, of texts and elements. The name may have its space and a blank before it.
func element(name string, content ...any) answer {
	space, local, ok := strings.Cut(name, " ")
	if !ok {
		space, local = "", name
	}
	a := answer{XMLName: xml.Name{Space: space, Local: local}}
	for _, c := range content {
		switch c := c.(type) {
		case answer:
			a.Within = append(a.Within, c)
		case []answer:
			a.Within = append(a.Within, c...)
		default:
			a.Text += fmt.Sprint(c)
		}
	}
	return a
}

// describeZones tells a region's zones. Local and wavelength zones, whose names have more after the region's, need an
// opt-in: without all they are left out here.
func (c *Cloud) describeZones(region string, all bool) answer {
	var zones []answer
	for _, zone := range slices.Sorted(maps.Keys(c.zones)) {
		opted := "opt-in-not-required"
		if len(zone) != len(region)+1 {
			opted = "not-opted-in"
		}
		if c.zones[zone] == region && (all || opted == "opt-in-not-required") {
			zones = append(zones, element("item", element("zoneName", zone), element("zoneState", "available"),
				element("regionName", region), element("optInStatus", opted)))
		}
	}
	return element(ec2Space+"DescribeAvailabilityZonesResponse", element("availabilityZoneInfo", zones))
}

// background is for what has no request: a context that does not end.
var background = context.Background()
