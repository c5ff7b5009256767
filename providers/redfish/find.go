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
	"github.com/forcefence/forcefence/providers/remote"
)

// systemQuery names the BMC to ask, and how to find the system there.
type systemQuery struct {
	remote.Account
	path string // of the system's resource, if the target names it
	id   string // a system's Id, UUID or serial number, if the target names one
	sole bool   // a BMC of this machine's own: its only system is the machine
}

func (p *Provider) locateSystem(t providers.Target) (systemQuery, error) {
	if p.cfg.Address != "" {
		origin, _, err := p.cfg.parseAddress(p.cfg.Address)
		if err != nil {
			return systemQuery{}, providers.WithClass(providers.ErrPermanent, fmt.Errorf("address %w", err))
		}
		return systemQuery{Account: remote.Account{Device: origin}, id: strings.TrimSpace(t.ID)}, nil
	}
	if t.ID == "" {
		return systemQuery{}, providers.WithClass(providers.ErrNotFound,
			errors.New("the target has no ID: give it the address of its BMC"))
	}
	origin, path, err := p.cfg.parseAddress(t.ID)
	if err != nil {
		return systemQuery{}, providers.WithClass(providers.ErrPermanent, fmt.Errorf("target ID %w", err))
	}
	return systemQuery{Account: remote.Account{Device: origin, Owner: p.cfg.OwnerOf(t)}, path: path, sole: path == ""},
		nil
}

// system is what is read of a ComputerSystem. All other properties may have any shape.
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
	sleep string    // the property and word that show that its memory is kept, or ""
	rails []rail    // of its chassis, where they were read with it
}

type action struct {
	Target  string `json:"target"`
	Allowed words  `json:"ResetType@Redfish.AllowableValues"`
}

// resetAction returns the system's reset action.
func (s *system) resetAction() action {
	if s.Actions.Reset.Target != "" {
		return s.Actions.Reset
	}
	return s.Actions.Cisco
}

// related are the links of a resource.
type related struct{ Chassis, ComputerSystems links }

// UnmarshalJSON treats an unexpected shape as no links.
func (r *related) UnmarshalJSON(b []byte) error {
	type plain related
	var p plain
	if json.Unmarshal(b, &p) == nil {
		*r = related(p)
	}
	return nil
}

// links are the paths of other resources, in any shape that BMCs use: Cisco's are plain strings. One more than
// maxSystems is kept, which shows that the list was longer.
type links []string

// UnmarshalJSON skips what is no link.
func (l *links) UnmarshalJSON(b []byte) error {
	return eachOf(b, func(e json.RawMessage) bool {
		var o link
		if json.Unmarshal(e, &o.ID) != nil {
			_ = json.Unmarshal(e, &o)
		}
		if o.ID != "" {
			*l = append(*l, clipText(o.ID, maxPath+1)) // which local refuses
		}
		return len(*l) <= maxSystems
	})
}

// words are a list of a device's words, bounded in number and length.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(b []byte) error {
	return eachOf(b, func(e json.RawMessage) bool {
		var word string
		if json.Unmarshal(e, &word) == nil {
			*w = append(*w, clipText(word, maxText))
		}
		return len(*w) < maxWords
	})
}

// word is a property that is skipped if it has another shape.
type word string

// UnmarshalJSON implements json.Unmarshaler.
func (w *word) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*w = word(clipText(s, maxText))
	}
	return nil
}

// eachOf decodes a list until f has enough. A single value is a list of one.
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

// clipText returns a bounded copy of a text, so that the rest of a long answer is not kept in memory.
func clipText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.Clone(s[:most])
}

// clipFields drops what exceeds the bounds of a system's fields: many systems are kept until all are read.
func (s *system) clipFields() {
	for _, name := range []*string{&s.ID, &s.UUID, &s.SerialNumber} {
		if len(*name) > maxText {
			*name = "" // it identifies nothing
		}
	}
	s.PowerState, s.ETag = clipText(s.PowerState, maxText), clipText(s.ETag, maxPath)
	s.Actions.Reset.Target, s.Actions.Cisco.Target = clipText(s.Actions.Reset.Target,
		maxPath+1), clipText(s.Actions.Cisco.Target, maxPath+1)
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

// hasUUID reports whether the system has this UUID, in either byte order. A placeholder matches nothing.
func (s *system) hasUUID(uuid string) bool {
	_, known := providers.ParseUUID(uuid)
	_, told := providers.ParseUUID(s.UUID)
	return known && told && providers.SameMachine(uuid, s.UUID) == nil
}

// hasID reports whether the system has that Id or serial number. Some BMCs pad them with blanks.
func (s *system) hasID(id string) bool { return strings.TrimSpace(s.ID) == id }

func (s *system) hasSerial(id string) bool { return strings.TrimSpace(s.SerialNumber) == id }

// matchesTarget reports whether the system is the one that w and t name, as far as its own resource shows.
func (s *system) matchesTarget(w systemQuery, t providers.Target) bool {
	switch {
	case w.path != "":
		return true // Ask and Confirm compare the UUIDs
	case w.id != "":
		return s.hasID(w.id) || s.hasSerial(w.id) || s.hasUUID(w.id)
	default:
		return s.hasUUID(t.SystemUUID)
	}
}

// bySerial reports whether the system matches by its serial number only.
func (s *system) bySerial(w systemQuery) bool {
	return w.id != "" && !s.hasID(w.id) && !s.hasUUID(w.id)
}

// systemPlace is the place where a target's system was found.
type systemPlace struct {
	path string
	sole bool // it is the BMC's only one, and need not have the node's UUID; another machine's it must not have
}

func (p systemPlace) matchesTarget(s *system, w systemQuery, t providers.Target) bool {
	return p.sole && providers.SameMachine(t.SystemUUID, s.UUID) == nil || s.matchesTarget(w, t)
}

// findSystem reads the target's system: in one GET if its place is known from the target, from memory, or from its Id.
// The state is never remembered. A place where another system is now is looked up again.
func (b *bmc) findSystem(ctx context.Context, w systemQuery, t providers.Target) (*system, error) {
	if w.path != "" {
		return b.readSystem(ctx, w.path)
	}
	began := b.p.opts.Now()
	key := w.placeKey(t)
	b.p.pool.Lock()
	at, known := b.places[key]
	last := b.scanned // however old: it only shows where to look
	b.p.pool.Unlock()
	if !known {
		if s, err := last.chooseSystem(w, t); err == nil {
			at, known = s, true
		}
	}
	if !known && w.id != "" && url.PathEscape(w.id) == w.id && w.id != "." && w.id != ".." {
		switch s, err := b.readByID(ctx, w.id); {
		case err == nil && s.hasID(w.id):
			b.rememberPlace(key, systemPlace{path: s.path})
			return s, nil
		case err != nil && (httpStatus(err) == 0 || httpStatus(err) == http.StatusUnauthorized):
			return nil, err
		}
	}
	if known {
		s, err := b.readSystem(ctx, at.path)
		switch code := httpStatus(err); {
		case err == nil && at.matchesTarget(s, w, t):
			b.rememberPlace(key, at)
			return s, nil
		case err != nil && code != http.StatusNotFound && code != http.StatusGone:
			return nil, err
		}
		b.rememberPlace(key, systemPlace{})
	}

	all, err := b.scanSystems(ctx)
	if err != nil {
		return nil, err
	}
	at, err = all.chooseSystem(w, t)
	if err != nil {
		return nil, err
	}
	s := all.systemAt(at.path) // a copy
	if s.asked.Before(began) { // by a scan that other calls began
		if s, err = b.readSystem(ctx, at.path); err != nil {
			return nil, err
		}
		if !at.matchesTarget(s, w, t) {
			return nil, notFound("the system moved while it was looked up")
		}
	}
	b.rememberPlace(key, at)
	return s, nil
}

// placeKey is the key by which a system's place is remembered: one for all spellings of a UUID.
func (w systemQuery) placeKey(t providers.Target) string {
	return w.id + "\x00" + providers.CanonicalUUID(t.SystemUUID)
}

// maxSystems is larger than the number of systems of any enclosure.
const maxSystems = 1024

// rememberPlace stores the place of a system; the zero place removes it.
func (b *bmc) rememberPlace(key string, p systemPlace) {
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	if p == (systemPlace{}) || len(b.places) > 4*maxSystems {
		delete(b.places, key)
		return
	}
	b.places[key] = p
}

// readByID reads the system whose path ends with this Id, as on nearly all BMCs.
func (b *bmc) readByID(ctx context.Context, id string) (*system, error) {
	systems, err := b.systemsPath(ctx)
	if err != nil {
		return nil, err
	}
	return b.readSystem(ctx, strings.TrimSuffix(systems, "/")+"/"+id)
}

// systemsPath returns the path of the collection of systems.
func (b *bmc) systemsPath(ctx context.Context) (string, error) {
	if _, err := b.loggedIn(ctx); err != nil { // which reads the service root, too
		return "", err
	}
	b.p.pool.Lock()
	systems := b.systems
	b.p.pool.Unlock()
	if systems == "" {
		var err error
		if _, systems, err = b.readRoot(func(path string, into any) error {
			_, _, err := b.getResource(ctx, path, into)
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

// scan is the result of reading all systems of a BMC.
type scan struct {
	paths   []string
	systems []*system // those that could be read
	err     error     // why one could not be
}

// systemAt returns a copy of what was read at that path, which chooseSystem returned.
func (all *scan) systemAt(path string) *system {
	s := *all.systems[slices.IndexFunc(all.systems, func(s *system) bool { return s.path == path })]
	return &s
}

// identitiesOnly returns the part of a scan that is kept: the systems' identities and places.
func (all *scan) identitiesOnly() *scan {
	if all == nil {
		return nil
	}
	kept := &scan{paths: all.paths, err: all.err}
	for _, s := range all.systems {
		kept.systems = append(kept.systems, &system{path: s.path, ID: s.ID, UUID: s.UUID, SerialNumber: s.SerialNumber})
	}
	return kept
}

// scanSystems reads all systems. Callers share one scan, which continues when all have stopped waiting.
func (b *bmc) scanSystems(ctx context.Context) (*scan, error) {
	b.p.pool.Lock()
	if b.pendingScan.HasEnded() {
		b.pendingScan = remote.BeginTask(b.p.pool.Running, b.p.pool, b.Account, "look-up of systems", scanTime,
			func(ctx context.Context) (*scan, error) {
				all, err := b.readSystems(ctx)
				b.p.pool.Lock()
				defer b.p.pool.Unlock()
				b.scanned, b.pendingScan = all.identitiesOnly(), nil // the answers are the callers' who wait
				if code := httpStatus(err); code == http.StatusNotFound || code == http.StatusGone {
					b.systems = ""
				}
				return all, classifyError(ctx, err)
			})
	}
	t := b.pendingScan
	b.p.pool.Unlock()
	return t.Wait(ctx)
}

func (b *bmc) readSystems(ctx context.Context) (*scan, error) {
	paths, err := b.listMembers(ctx)
	if err != nil {
		return nil, err
	}
	systems, err := b.readAll(ctx, paths)
	if len(systems) == 0 {
		return nil, err
	}
	if err != nil {
		err = classifyError(ctx, err)
	}
	return &scan{paths, systems, err}, nil
}

// chooseSystem returns the only system that matches.
func (all *scan) chooseSystem(w systemQuery, t providers.Target) (systemPlace, error) {
	if all == nil {
		return systemPlace{}, notFound("not looked up yet")
	}
	if w.sole && len(all.paths) == 1 {
		return systemPlace{all.systems[0].path, true}, nil
	}
	_, known := providers.ParseUUID(t.SystemUUID)
	if !known && w.id == "" {
		return systemPlace{}, notFound("the BMC has %d systems and the node's system UUID is not known: name the "+
			"system", len(all.paths))
	}
	var fit, named []*system
	telling := 0
	for _, s := range all.systems {
		if s.matchesTarget(systemQuery{id: w.id}, t) {
			fit = append(fit, s)
			if s.hasID(w.id) {
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
		return systemPlace{}, notFound("%d systems match (%s): name one by its Id or UUID", len(fit), joinWords(ids))
	case all.err != nil && (len(fit) == 0 || fit[0].bySerial(w)):
		// A system that cannot be read may be the one, or a second one with that serial number. Ids and UUIDs are
		// unique, so one dead blade does not prevent the others from being fenced.
		return systemPlace{}, all.err
	case len(fit) == 0 && w.id != "":
		return systemPlace{}, notFound("none of the BMC's %d systems has that Id, UUID or serial number",
			len(all.paths))
	case len(fit) == 0 && telling == 0:
		return systemPlace{}, notFound("none of the BMC's %d systems reports a usable UUID: name the node's system "+
			"by its Id", len(all.paths))
	case len(fit) == 0:
		return systemPlace{}, notFound("none of the BMC's %d systems has system UUID %s", len(all.paths), t.SystemUUID)
	}
	return systemPlace{path: fit[0].path}, nil
}

func notFound(format string, a ...any) error {
	return providers.WithClass(providers.ErrNotFound, fmt.Errorf(format, a...))
}

// listMembers returns the paths of all systems, however many pages the collection has.
func (b *bmc) listMembers(ctx context.Context) ([]string, error) {
	next, err := b.systemsPath(ctx)
	if err != nil {
		return nil, err
	}
	const pages = 32 // a BMC whose pages form a ring must not hold us
	var paths []string
	endless := false
	for range pages {
		path, ok := b.localPath(next)
		if !ok {
			return nil, notFound("the BMC's list of systems continues on another host")
		}
		var page struct {
			Members links
			Next    string `json:"Members@odata.nextLink"`
		}
		if _, _, err := b.getResource(ctx, path, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Members {
			if path, ok := b.localPath(m); ok && !slices.Contains(paths, path) {
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
	r, asked, err := b.getResource(ctx, path, s)
	if err != nil {
		return nil, err
	}
	s.asked = asked
	if tag := r.header.Get("ETag"); tag != "" {
		s.ETag = tag
	}
	s.clipFields()
	if s.PowerState == "Off" {
		s.sleep = clipText(findSleepState(r.body, b.p.cfg.IgnoreStates), maxText)
	}
	return s, nil
}
