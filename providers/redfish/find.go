package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// where says which BMC to ask, and how the system is found there.
type where struct {
	account
	path string // of the system's resource, if the target names it
	id   string // a system's Id, UUID or serial number, if the target names one
	sole bool   // a BMC of this machine's own: its only system is the machine
}

func (p *Provider) where(t providers.Target) (where, error) {
	if p.cfg.Address != "" {
		origin, _, err := p.cfg.parse(p.cfg.Address)
		if err != nil {
			return where{}, providers.WithClass(providers.ErrPermanent, fmt.Errorf("address %w", err))
		}
		return where{account: account{origin: origin}, id: strings.TrimSpace(t.ID)}, nil
	}
	if t.ID == "" {
		return where{}, providers.WithClass(providers.ErrNotFound, errors.New("the target has no ID: give it the address of its BMC"))
	}
	origin, path, err := p.cfg.parse(t.ID)
	if err != nil {
		return where{}, providers.WithClass(providers.ErrPermanent, fmt.Errorf("target ID %w", err))
	}
	return where{account: account{origin, p.cfg.Owner(t)}, path: path, sole: path == ""}, nil
}

// system is what is read of a ComputerSystem; what else a BMC says there may have any shape.
type system struct {
	ID           string `json:"Id"`
	UUID         string
	SerialNumber string
	PowerState   string
	Links        related
	Actions      struct {
		Reset action `json:"#ComputerSystem.Reset"`
		Cisco action `json:"#System.Reset"` // of CIMC 3 and 4
	}
	ETag string `json:"@odata.etag"`

	path  string    // where it was read
	asked time.Time // just before the first of the GETs that carried it and its chassis
	sleep string    // the property and word by which it says that its memory is kept, or ""
	rails []rail    // of its chassis, where they were read with it
}

type action struct {
	Target  string `json:"target"`
	Allowed words  `json:"ResetType@Redfish.AllowableValues"`
}

// reset returns the system's reset action.
func (s *system) reset() action {
	if s.Actions.Reset.Target != "" {
		return s.Actions.Reset
	}
	return s.Actions.Cisco
}

// related are the links of a resource.
type related struct{ Chassis, ComputerSystems links }

// UnmarshalJSON takes what has another shape for no links.
func (r *related) UnmarshalJSON(b []byte) error {
	type plain related
	var p plain
	if json.Unmarshal(b, &p) == nil {
		*r = related(p)
	}
	return nil
}

// links are the paths of other resources, in any shape that BMCs give them: Cisco's are plain strings. Of a list that is longer than
// maxSystems one more is kept, which tells so.
type links []string

// UnmarshalJSON passes over what is no link.
func (l *links) UnmarshalJSON(b []byte) error {
	return eachOf(b, func(e json.RawMessage) bool {
		var o link
		if json.Unmarshal(e, &o.ID) != nil {
			_ = json.Unmarshal(e, &o)
		}
		if o.ID != "" {
			*l = append(*l, clip(o.ID, maxPath+1)) // which local refuses
		}
		return len(*l) <= maxSystems
	})
}

// words are a list of a device's words: as many, and as much of each, as is looked at.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(b []byte) error {
	return eachOf(b, func(e json.RawMessage) bool {
		var word string
		if json.Unmarshal(e, &word) == nil {
			*w = append(*w, clip(word, maxText))
		}
		return len(*w) < maxWords
	})
}

// word is a property that is passed over where it has another shape.
type word string

// UnmarshalJSON implements json.Unmarshaler.
func (w *word) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*w = word(clip(s, maxText))
	}
	return nil
}

// eachOf decodes a list one by one, until f has enough. What is no list is taken for one of itself.
func eachOf(b []byte, f func(json.RawMessage) bool) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if bytes.HasPrefix(b, []byte("[")) {
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	for more := true; more && d.More(); {
		var e json.RawMessage
		if err := d.Decode(&e); err != nil {
			return err
		}
		more = f(e)
	}
	return nil
}

const (
	maxPath  = 1 << 10 // bytes of a resource's path
	maxText  = 128     // of an Id, a UUID, a serial number, a word
	maxWords = 64      // in a list
)

// clip returns so much of a text, in memory of its own: of a megabyte no more is kept.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.Clone(s[:most])
}

// bound drops what a device said beyond what is looked at: many systems are kept until all are read.
func (s *system) bound() {
	for _, name := range []*string{&s.ID, &s.UUID, &s.SerialNumber} {
		if len(*name) > maxText {
			*name = "" // it identifies nothing
		}
	}
	s.PowerState, s.ETag = clip(s.PowerState, maxText), clip(s.ETag, maxPath)
	s.Actions.Reset.Target, s.Actions.Cisco.Target = clip(s.Actions.Reset.Target, maxPath+1), clip(s.Actions.Cisco.Target, maxPath+1)
	var chassis links
	for _, l := range s.Links.Chassis {
		if len(chassis) <= maxChassis && !slices.Contains(chassis, l) {
			chassis = append(chassis, l)
		}
	}
	if len(s.Links.Chassis) > maxSystems {
		chassis = append(chassis, "") // what was not read may be On
	}
	s.Links = related{Chassis: chassis}
}

// sameUUID tells whether the system has this UUID, in either byte order; placeholders and no UUID match nothing.
func (s *system) sameUUID(uuid string) bool {
	_, known := providers.ParseUUID(uuid)
	_, told := providers.ParseUUID(s.UUID)
	return known && told && providers.SameMachine(uuid, s.UUID) == nil
}

// named tells whether the system has that Id or serial number. Some BMCs pad them with blanks.
func (s *system) named(id string) bool { return strings.TrimSpace(s.ID) == id }

func (s *system) numbered(id string) bool { return strings.TrimSpace(s.SerialNumber) == id }

// fits tells whether the system is the one that w and t name, as far as it can tell by itself.
func (s *system) fits(w where, t providers.Target) bool {
	switch {
	case w.path != "":
		return true // Ask and Confirm compare the UUIDs
	case w.id != "":
		return s.named(w.id) || s.numbered(w.id) || s.sameUUID(w.id)
	default:
		return s.sameUUID(t.SystemUUID)
	}
}

// bySerial tells whether it is only the serial number by which the system fits.
func (s *system) bySerial(w where) bool { return w.id != "" && !s.named(w.id) && !s.sameUUID(w.id) }

// place is where a target's system was found.
type place struct {
	path string
	sole bool // it is the BMC's only one, and need not have the node's UUID; another machine's it must not have
}

func (p place) fits(s *system, w where, t providers.Target) bool {
	return p.sole && providers.SameMachine(t.SystemUUID, s.UUID) == nil || s.fits(w, t)
}

// find reads the target's system, at the cost of one GET where its place is known: told by the target, remembered, or by its Id. What
// it said is never remembered; a place where another system is now is forgotten, and looked up again.
func (b *bmc) find(ctx context.Context, w where, t providers.Target) (*system, error) {
	if w.path != "" {
		return b.read(ctx, w.path)
	}
	began := b.pool.now()
	key := w.key(t)
	at, known := b.remembered(key)
	if !known {
		if s, err := b.last().choose(w, t); err == nil {
			at, known = s, true
		}
	}
	if !known && w.id != "" && url.PathEscape(w.id) == w.id && w.id != "." && w.id != ".." {
		switch s, err := b.readByID(ctx, w.id); {
		case err == nil && s.named(w.id):
			b.remember(key, place{path: s.path})
			return s, nil
		case err != nil && (status(err) == 0 || status(err) == http.StatusUnauthorized):
			return nil, err
		}
	}
	if known {
		s, err := b.read(ctx, at.path)
		switch code := status(err); {
		case err == nil && at.fits(s, w, t):
			b.remember(key, at)
			return s, nil
		case err != nil && code != http.StatusNotFound && code != http.StatusGone:
			return nil, err
		}
		b.remember(key, place{})
	}

	all, err := b.scan(ctx)
	if err != nil {
		return nil, err
	}
	at, err = all.choose(w, t)
	if err != nil {
		return nil, err
	}
	s := all.system(at.path)   // a copy
	if s.asked.Before(began) { // by a scan that other calls began
		if s, err = b.read(ctx, at.path); err != nil {
			return nil, err
		}
		if !at.fits(s, w, t) {
			return nil, notFound("the system moved while it was looked up")
		}
	}
	b.remember(key, at)
	return s, nil
}

// key is what a system's place is remembered by.
func (w where) key(t providers.Target) string { return w.id + "\x00" + canonicalUUID(t.SystemUUID) }

// canonicalUUID writes a UUID in one way, so that nobody makes us remember a place for each of its spellings.
func canonicalUUID(s string) string {
	u, ok := providers.ParseUUID(s)
	if !ok {
		return ""
	}
	return string(u[:])
}

func (b *bmc) remembered(key string) (place, bool) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	p, ok := b.places[key]
	return p, ok
}

// maxSystems is more than any enclosure has.
const maxSystems = 1024

// remember keeps where a system is; the zero place forgets it.
func (b *bmc) remember(key string, p place) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if p == (place{}) || len(b.places) > 4*maxSystems {
		delete(b.places, key)
		return
	}
	b.places[key] = p
}

// last returns what the last scan saw, however old: it says where to look.
func (b *bmc) last() *scan {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.scanned
}

// readByID reads the system that has this Id, as nearly all BMCs have it: at that place in the collection.
func (b *bmc) readByID(ctx context.Context, id string) (*system, error) {
	systems, err := b.collection(ctx)
	if err != nil {
		return nil, err
	}
	return b.read(ctx, strings.TrimSuffix(systems, "/")+"/"+id)
}

// collection returns the path of the collection of systems.
func (b *bmc) collection(ctx context.Context) (string, error) {
	if _, err := b.loggedIn(ctx); err != nil { // which reads the service root, too
		return "", err
	}
	b.pool.mu.Lock()
	systems := b.systems
	b.pool.mu.Unlock()
	if systems == "" {
		var err error
		if _, systems, err = b.root(func(path string, into any) error {
			_, _, err := b.get(ctx, path, into)
			return err
		}); err != nil {
			return "", err
		}
	}
	if systems == "" {
		return "", notFound("the BMC has no collection of systems")
	}
	return systems, nil
}

// scan is a look at all systems of a BMC.
type scan struct {
	paths   []string
	systems []*system // those that could be read
	err     error     // why one could not be
}

// system returns a copy of what was read at that path, which is one that choose returned.
func (all *scan) system(path string) *system {
	s := *all.systems[slices.IndexFunc(all.systems, func(s *system) bool { return s.path == path })]
	return &s
}

// identities returns what is kept of a scan: who the systems are, and where.
func (all *scan) identities() *scan {
	if all == nil {
		return nil
	}
	kept := &scan{paths: all.paths, err: all.err}
	for _, s := range all.systems {
		kept.systems = append(kept.systems, &system{path: s.path, ID: s.ID, UUID: s.UUID, SerialNumber: s.SerialNumber})
	}
	return kept
}

// scan looks at all systems. Callers share one look, which goes on for the next when nobody can wait any longer.
func (b *bmc) scan(ctx context.Context) (*scan, error) {
	b.pool.mu.Lock()
	if b.pool.closed {
		b.pool.mu.Unlock()
		return nil, errClosed
	}
	if b.scanning.ended() {
		b.scanning = begin(b.pool.ctx, b, "look-up of systems", scanTime, func(ctx context.Context) (*scan, error) {
			all, err := b.look(ctx)
			b.pool.mu.Lock()
			defer b.pool.mu.Unlock()
			b.scanned, b.scanning = all.identities(), nil // the answers are the callers' who wait
			if code := status(err); code == http.StatusNotFound || code == http.StatusGone {
				b.systems = ""
			}
			return all, err
		})
	}
	t := b.scanning
	b.pool.mu.Unlock()
	return t.wait(ctx)
}

func (b *bmc) look(ctx context.Context) (*scan, error) {
	paths, err := b.members(ctx)
	if err != nil {
		return nil, err
	}
	systems, err := b.readAll(ctx, paths)
	if len(systems) == 0 {
		return nil, err
	}
	if err != nil {
		err = classify(ctx, err)
	}
	return &scan{paths, systems, err}, nil
}

// choose takes the only system that fits.
func (all *scan) choose(w where, t providers.Target) (place, error) {
	if all == nil {
		return place{}, notFound("not looked up yet")
	}
	if w.sole && len(all.paths) == 1 {
		return place{all.systems[0].path, true}, nil
	}
	_, known := providers.ParseUUID(t.SystemUUID)
	if !known && w.id == "" {
		return place{}, notFound("the BMC has %d systems and the node's system UUID is not known: name the system", len(all.paths))
	}
	var fit, named []*system
	telling := 0
	for _, s := range all.systems {
		if s.fits(where{id: w.id}, t) {
			fit = append(fit, s)
			if s.named(w.id) {
				named = append(named, s)
			}
		}
		if _, ok := providers.ParseUUID(s.UUID); ok {
			telling++
		}
	}
	if len(named) == 1 { // an Id goes before a serial number, as it does where the system is read by its Id
		fit = named
	}
	switch {
	case len(fit) > 1:
		ids := make([]string, len(fit))
		for i, s := range fit {
			ids[i] = s.ID
		}
		return place{}, notFound("%d systems match (%s): name one by its Id or UUID", len(fit), list(ids))
	case all.err != nil && (len(fit) == 0 || fit[0].bySerial(w)):
		// A system that cannot be read may be the one, or a second one with that serial number. Ids and UUIDs are unique by
		// their definition: one dead blade must not keep the others from being fenced.
		return place{}, all.err
	case len(fit) == 0 && w.id != "":
		return place{}, notFound("none of the BMC's %d systems has that Id, UUID or serial number", len(all.paths))
	case len(fit) == 0 && telling == 0:
		return place{}, notFound("none of the BMC's %d systems tells a usable UUID: name the node's system by its Id", len(all.paths))
	case len(fit) == 0:
		return place{}, notFound("none of the BMC's %d systems has system UUID %s", len(all.paths), t.SystemUUID)
	}
	return place{path: fit[0].path}, nil
}

func notFound(format string, a ...any) error {
	return providers.WithClass(providers.ErrNotFound, fmt.Errorf(format, a...))
}

// members lists the paths of all systems, whatever number of pages the collection has.
func (b *bmc) members(ctx context.Context) ([]string, error) {
	next, err := b.collection(ctx)
	if err != nil {
		return nil, err
	}
	const pages = 32 // a BMC whose pages form a ring must not hold us
	var paths []string
	endless := false
	for range pages {
		path, ok := b.local(next)
		if !ok {
			return nil, notFound("the BMC's list of systems goes on elsewhere")
		}
		var page struct {
			Members links
			Next    string `json:"Members@odata.nextLink"`
		}
		if _, _, err := b.get(ctx, path, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Members {
			if path, ok := b.local(m); ok && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		next = page.Next
		if endless = len(page.Members) > maxSystems || len(paths) > maxSystems; endless || next == "" {
			break
		}
	}
	switch {
	case endless, next != "":
		return nil, notFound("the BMC's list of systems does not end")
	case len(paths) == 0:
		return nil, notFound("the BMC has no systems")
	}
	return paths, nil
}

// readAll reads systems, a few at a time. It returns those that could be read, and the first error.
func (b *bmc) readAll(ctx context.Context, paths []string) ([]*system, error) {
	systems, errs := make([]*system, len(paths)), make([]error, len(paths))
	var wait sync.WaitGroup
	var next atomic.Int32
	for range min(len(paths), maxRequests) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(paths); i = int(next.Add(1)) - 1 {
				systems[i], errs[i] = b.readOne(ctx, paths[i])
			}
		})
	}
	wait.Wait()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return systems, nil
	}
	return slices.DeleteFunc(systems, func(s *system) bool { return s == nil }), errs[i]
}

func (b *bmc) readOne(ctx context.Context, path string) (*system, error) {
	s := &system{path: path}
	r, asked, err := b.get(ctx, path, s)
	if err != nil {
		return nil, err
	}
	s.asked = asked
	if tag := r.header.Get("ETag"); tag != "" {
		s.ETag = tag
	}
	s.bound()
	if s.PowerState == "Off" {
		s.sleep = clip(asleep(r.body, b.pool.ignoreStates), maxText)
	}
	return s, nil
}
