package datacenter

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The paths of the event service. Its shapes are those of the DMTF's mockup public-rackmount1, its stream that of
// OpenBMC.
const (
	eventsPath        = "/redfish/v1/EventService"
	streamPath        = eventsPath + "/SSE"
	subscriptionsPath = eventsPath + "/Subscriptions"
)

// events are the receivers of a BMC's events. BMC.mu guards all of it.
type events struct {
	streams       map[chan []byte]struct{}
	subscriptions map[string]Subscription // by Id
	lastID        int
	sent          int
}

// Subscription is an EventDestination.
type Subscription struct {
	Destination, Context, Protocol string
	EventTypes                     []string `json:",omitempty"`
}

// Streams returns how many streams of events are open.
func (b *BMC) Streams() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events.streams)
}

// Subscriptions returns the subscriptions, by their Id.
func (b *BMC) Subscriptions() map[string]Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.events.subscriptions)
}

// Subscribe adds a subscription, as another client's, and returns its Id.
func (b *BMC) Subscribe(s Subscription) (id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events.lastID++
	id = strconv.Itoa(b.events.lastID)
	b.events.subscriptions[id] = s
	b.notify()
	return id
}

// ForgetSubscriptions forgets them, as a reset to the factory's settings does.
func (b *BMC) ForgetSubscriptions() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.events.subscriptions)
	b.notify()
}

// EndStreams ends all streams of events; their connections go with them.
func (b *BMC) EndStreams() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.events.streams {
		close(s)
	}
	clear(b.events.streams)
	b.notify()
}

// tell sends the event of a machine's new power.
func (b *BMC) tell(m *Machine, on bool) {
	if f, _ := b.currentFault(); f.Mute {
		return
	}
	message := "ResourceEvent.1.3.0.ResourcePoweredOff"
	if on {
		message = "ResourceEvent.1.3.0.ResourcePoweredOn"
	}
	b.SendEvent(message, systemPath(m))
}

// SendEvent sends an event with that message, about the resource at that path ("" for none).
func (b *BMC) SendEvent(messageID, origin string) {
	b.mu.Lock()
	b.events.sent++
	id := strconv.Itoa(b.events.sent)
	b.mu.Unlock()
	e := object{"MemberId": "0", "EventId": id, "EventType": "Alert", "MessageId": messageID,
		"EventTimestamp": time.Now().Format(time.RFC3339), "Severity": "OK"}
	if origin != "" {
		e["OriginOfCondition"] = link(origin)
	}
	text, err := json.MarshalIndent(
		object{"@odata.type": "#Event.v1_7_0.Event", "Id": id, "Name": "Event Log", "Events": []object{e}}, "", "  ")
	if err != nil {
		panic(err) // strings
	}
	lines := bytes.ReplaceAll(text, []byte("\n"), []byte("\ndata: "))
	b.SendRaw(slices.Concat([]byte("id: "+id+"\ndata: "), lines, []byte("\n\n")))
	b.push(text)
}

// SendRaw writes to all streams. What a client does not read is lost to it.
func (b *BMC) SendRaw(raw []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.events.streams {
		select {
		case s <- raw:
		default:
		}
	}
}

// push posts to all destinations, each once and in its own time.
func (b *BMC) push(text []byte) {
	if b.dc.ctx.Err() != nil {
		return
	}
	for _, s := range b.Subscriptions() {
		b.dc.timers.Add(1)
		go func() {
			defer b.dc.timers.Done()
			ctx, cancel := context.WithTimeout(b.dc.ctx, 10*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Destination, bytes.NewReader(text))
			if err != nil {
				return
			}
			r.Header.Set("Content-Type", "application/json")
			// VerifyCertificate of a new EventDestination is false.
			t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
			if resp, err := t.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
}

// serveEvents answers for the event service.
func (b *BMC) serveEvents(a *answer, r *http.Request, f Fault) {
	id := strings.TrimPrefix(r.URL.Path, subscriptionsPath+"/")
	b.mu.Lock()
	s, known := b.events.subscriptions[id]
	b.mu.Unlock()
	switch path := r.URL.Path; {
	case path == eventsPath:
		o := object{
			"@odata.id": eventsPath, "@odata.type": "#EventService.v1_9_0.EventService", "Id": "EventService",
			"Name":   "Event Service",
			"Status": object{"State": "Enabled", "Health": "OK"}, "ServiceEnabled": !f.EventsOff,
			"DeliveryRetryAttempts": 3, "DeliveryRetryIntervalSeconds": 60,
			"EventTypesForSubscription": []string{"StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved",
				"Alert"},
			"EventFormatTypes":             []string{"Event", "MetricReport"},
			"SSEFilterPropertiesSupported": object{"EventFormatType": true},
			"ServerSentEventUri":           streamPath, "Subscriptions": link(subscriptionsPath),
		}
		switch f.StreamURI {
		case "":
		case "none":
			delete(o, "ServerSentEventUri")
		default:
			o["ServerSentEventUri"] = f.StreamURI
		}
		a.get(r, o)
	case path == streamPath:
		b.stream(a, r, f)
	case path == subscriptionsPath && r.Method == http.MethodPost:
		b.subscribe(a, r, f)
	case path == subscriptionsPath:
		members := []object{}
		for _, id := range slices.Sorted(maps.Keys(b.Subscriptions())) {
			members = append(members, link(subscriptionsPath+"/"+id))
		}
		a.get(r, object{
			"@odata.id": subscriptionsPath, "@odata.type": "#EventDestinationCollection.EventDestinationCollection",
			"Name": "Event Subscriptions Collection", "Members@odata.count": len(members), "Members": members,
		})
	case known && r.Method == http.MethodDelete:
		b.mu.Lock()
		delete(b.events.subscriptions, id)
		b.notify()
		b.mu.Unlock()
		a.WriteHeader(http.StatusNoContent)
	case known:
		a.get(r, object{
			"@odata.id": path, "@odata.type": "#EventDestination.v1_13_0.EventDestination", "Id": id,
			"Name":        "EventSubscription " + id,
			"Destination": s.Destination, "Context": s.Context, "Protocol": s.Protocol, "EventTypes": s.EventTypes,
			"SubscriptionType": "RedfishEvent",
		})
	default:
		a.fail(http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
	}
}

func (b *BMC) subscribe(a *answer, r *http.Request, f Fault) {
	var s Subscription
	switch err := json.NewDecoder(http.MaxBytesReader(a, r.Body, 1<<16)).Decode(&s); {
	case f.SubscribeStatus != 0:
		a.fail(f.SubscribeStatus, "Base.1.8.GeneralError")
	case err != nil || s.Destination == "" || s.Protocol != "Redfish":
		a.fail(http.StatusBadRequest, "Base.1.8.PropertyMissing")
	case f.EventTypes && len(s.EventTypes) == 0:
		a.fail(http.StatusBadRequest, "Base.1.8.PropertyMissing")
	default:
		id := b.Subscribe(s)
		a.Header().Set("Location", b.url+subscriptionsPath+"/"+id)
		a.json(http.StatusCreated,
			object{"@odata.id": subscriptionsPath + "/" + id, "Id": id, "Destination": s.Destination,
				"Context": s.Context})
	}
}

// stream sends events until the client or the data centre goes, or the stream is ended.
func (b *BMC) stream(a *answer, r *http.Request, f Fault) {
	switch filter := r.URL.Query().Get("$filter"); {
	case f.StreamStatus != 0:
		a.fail(f.StreamStatus, "Base.1.8.GeneralError")
		return
	case r.Method != http.MethodGet:
		a.fail(http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed")
		return
	case r.Header.Get("Accept") != "text/event-stream":
		a.fail(http.StatusNotAcceptable, "Base.1.8.HeaderInvalid")
		return
	case filter != "" && (f.NoFilter || filter != "EventFormatType eq Event"):
		a.fail(http.StatusBadRequest, "Base.1.8.QueryParameterValueFormatError")
		return
	}
	kind := "text/event-stream"
	if f.StreamType != "" {
		kind = f.StreamType
	}
	a.Header().Set("Content-Type", kind)
	if f.StreamPacked {
		a.Header().Set("Content-Encoding", "gzip")
	}
	a.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(a.ResponseWriter).Flush
	_ = flush()
	const queue = 4096
	s := make(chan []byte, queue)
	b.mu.Lock()
	b.events.streams[s] = struct{}{}
	b.notify()
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.events.streams, s)
		b.notify()
	}()
	for {
		select {
		case raw, more := <-s:
			if !more {
				panic(http.ErrAbortHandler)
			}
			if _, err := a.Write(raw); err != nil {
				return
			}
			_ = flush()
		case <-r.Context().Done():
			return
		}
	}
}
