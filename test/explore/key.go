package explore

import (
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// Two states are the same if whatever happens next happens in both. So a key leaves out names and clocks: ids are
// numbered as they come up, and a time is about how long it is ago (edges), and which of those that are as long ago it
// is. What a course remembers is written down field by field, unexported ones too, so that a new field counts without
// anybody adding it here; left out is what no decision hangs on (skipped), and what the next look overwrites (ofLook),
// unless the course is between that look's reads.

// key writes states down.
type key struct {
	buf   []byte
	ids   []id
	times []mark
	order []time.Time
	now   time.Time
	live  bool      // the course goes on with the look that it has
	sent  time.Time // when the course's look was sent
}

// mark is a time in buf.
type mark struct {
	at int
	t  time.Time
}

const grain = 500 * time.Millisecond

// of is the state's key.
func (k *key) of(s *state, o *Options) uint64 {
	b := k.text(s, o, false)
	h := maphash.Bytes(seed, b)
	if s.ctl[0] != nil && s.ctl[1] != nil { // which is which does not matter
		h = min(h, maphash.Bytes(seed, k.text(s, o, true)))
	}
	return h
}

var seed = maphash.MakeSeed()

func (k *key) text(s *state, o *Options, swapped bool) []byte {
	k.buf, k.ids, k.times, k.now = k.buf[:0], k.ids[:0], k.times[:0], s.now().Wall
	n := &s.node
	k.id(n.rv)
	k.id(n.lease)
	k.id(n.boot)
	k.id(n.mark)
	k.bools(n.unknown, n.paused, n.inUse, n.listed, n.poweredOn, n.unready, s.att[0], s.att[1], n.rec != nil)
	if n.rec != nil {
		k.record(n.rec)
	}
	for i := range o.Pods {
		p := &s.pods[i]
		k.id(p.uid)
		k.id(p.rv)
		k.id(p.spared)
		k.buf = append(k.buf, byte(p.on))
		k.bools(p.tomb, p.deleting)
		k.id(s.ended[i])
	}
	for j := range s.m {
		k.machine(&s.m[j], o)
	}
	k.buf = append(k.buf, unsafe.Slice((*byte)(unsafe.Pointer(&s.left)), unsafe.Sizeof(s.left))...)
	for _, w := range s.orphans {
		k.write(w)
	}
	for i := range s.ctl {
		if swapped {
			i = 1 - i
		}
		k.ctl(s.ctl[i])
		k.bools(n.paused && s.ctl[i] != nil && s.ctl[i].pausedBefore(s))
	}
	k.stamp()
	return k.buf
}

func (k *key) machine(m *machine, o *Options) {
	h := &m.hook
	k.bools(m.power, m.changing, m.cut, m.up, m.booted, m.listed, m.wants, m.mounted)
	k.id(m.boot)
	k.bools(h.Read, h.Marked, h.ReadySeen, h.Listed, h.Detaching, h.fresh, h.named)
	for i := range o.Pods {
		k.id(m.cache[i].uid)
		if !m.listed {
			k.id(m.before[i].uid)
			k.bools(m.before[i].over)
		}
		k.id(m.run[i].uid)
		k.bools(m.cache[i].over, m.run[i].told)
		k.buf = append(k.buf, byte(m.run[i].stage))
		k.id(h.known[i])
	}
}

func (k *key) write(w *write) {
	if k.bools(w != nil); w == nil {
		return
	}
	k.buf = append(k.buf, byte(w.do))
	k.version(w.rv)
	k.version(w.uid)
	k.version(w.prv)
	k.id(w.fence)
	k.bools(w.on, w.inUse, w.listed, w.rec != nil)
	if w.rec != nil {
		k.record(w.rec)
	}
}

func (k *key) ctl(c *ctl) {
	if k.bools(c != nil); c == nil {
		return
	}
	k.buf = append(k.buf, byte(c.request), byte(c.step), byte(len(c.rest)))
	k.write(c.write)
	k.bools(c.had, c.lease, c.looked, c.back)
	if c.request == looking && c.had {
		k.id(c.leaseRV)
		if !c.lease {
			k.version(c.node.rv)
		}
	}
	switch c.request {
	case looking, asking:
		k.time(c.sent.Wall)
	case idle:
		k.buf = append(k.buf, byte(c.after/grain))
		k.version(c.sawNode)
		k.version(c.sawLease)
	}
	for _, p := range c.rest {
		k.id(idOf(p.UID))
		k.version(idOf(p.ResourceVersion))
	}
	if a := c.course.Answer(); c.request == asking ||
		k.now.Sub(a.At.Wall) <= 2*proofTTL && a.State == providers.PowerOff {
		k.bools(c.said.off, c.said.unready)
		k.version(c.said.mark)
		k.version(c.said.boot)
		k.version(c.said.lease)
	}
	k.live = c.request == listing || c.request == resolving || c.request == listingAttachments || c.request == naming
	k.sent = c.course.Look().Sent.Wall
	course(k, unsafe.Pointer(&c.course))
	flock(k, unsafe.Pointer(c.fleet))
}

// stamp replaces the times by how they are ordered, and by how long ago they are.
func (k *key) stamp() {
	k.order = k.order[:0]
	for _, m := range k.times {
		k.order = append(k.order, m.t)
	}
	slices.SortFunc(k.order, time.Time.Compare)
	k.order = slices.CompactFunc(k.order, time.Time.Equal)
	rank, last := make([]byte, 0, 64), byte(255)
	for i, t := range k.order {
		b := k.ago(t)
		if b == last {
			rank = append(rank, rank[i-1]+1)
		} else {
			rank = append(rank, 0)
		}
		last = b
	}
	for _, m := range k.times {
		i, _ := slices.BinarySearchFunc(k.order, m.t, time.Time.Compare)
		k.buf[m.at], k.buf[m.at+1] = k.ago(m.t), rank[i]
	}
}

// edges are the ages, in grains, at which something changes: answers and lists grow old, Leases are missed and stale,
// waits are over.
var edges = []int{0, 1, 2, 6, 10, 20, 30, 50, 100, 120}

// ago is how old a time is: on an edge, or between two.
func (k *key) ago(t time.Time) byte {
	d := int((k.now.Sub(t) + grain/2) / grain)
	i, on := slices.BinarySearch(edges, d)
	if on {
		return byte(2*i + 1)
	}
	return byte(2 * i)
}

func (k *key) id(i id) {
	if i == 0 {
		k.buf = append(k.buf, 0)
		return
	}
	at := slices.Index(k.ids, i)
	if at < 0 {
		at = len(k.ids)
		k.ids = append(k.ids, i)
	}
	k.buf = append(k.buf, byte(at+1))
}

// version is an id that is only ever compared with those of the cluster, which are all written down by now. Any other
// id is an old one.
func (k *key) version(i id) {
	if i == 0 {
		k.buf = append(k.buf, 0)
		return
	}
	k.buf = append(k.buf, byte(slices.Index(k.ids, i)+2))
}

func (k *key) bools(bs ...bool) {
	var b byte
	for i, x := range bs {
		if x {
			b |= 1 << i
		}
	}
	k.buf = append(k.buf, b)
}

func (k *key) time(t time.Time) {
	if t.IsZero() {
		k.buf = append(k.buf, 0)
		return
	}
	k.buf = append(k.buf, 1, 0, 0)
	k.times = append(k.times, mark{len(k.buf) - 2, t})
}

// record is what decisions depend on: when a phase was entered counts only before and after the mark, and for alerts.
func (k *key) record(r *taint.Record) {
	k.id(idOf(r.ID))
	k.buf = append(append(k.buf, r.Phase...), r.Result...)
	k.id(idOf(r.BootID))
	k.id(idOf(r.LeaseRV))
	k.bools(r.PowerOff, len(r.Detaching) > 0)
	k.buf = append(k.buf, byte(r.Repeats))
	if r.Phase == taint.PhasePoweringOff || r.Phase == taint.PhaseDone {
		k.time(r.At)
	}
}

// writer writes one value down.
type writer func(k *key, p unsafe.Pointer)

type field struct {
	of   reflect.Type
	name string
}

func typ[T any]() reflect.Type { return reflect.TypeFor[T]() }

// skipped are fields that no decision depends on here: names of things that exist once; texts for people; fields of
// policies, which do not exist here; what each look reads again and the model never changes; and what belongs to an
// action on its way.
var skipped = map[field]bool{
	{typ[decide.Node](), "policy"}: true, {typ[decide.Node](), "facts"}: true, {typ[decide.Node](), "evictView"}: true,
	{typ[decide.Node](), "policyEffects"}: true, {typ[decide.Node](), "lastDecision"}: true,
	{typ[decide.Node](), "lastReadAt"}: true,
	{typ[decide.Node](), "readsTook"}:  true, {typ[decide.Node](), "readBegan"}: true,
	{typ[decide.Node](), "sights"}:         true, // the clocks agree: they have the record's times
	{typ[decide.Node](), "storageSetting"}: true, {typ[decide.Node](), "awaitedClaims"}: true,
	{typ[decide.Node](), "workTook"}:  true,
	{typ[evict.Memory](), "lastLook"}: true, {typ[fleet.Fleet](), "heardSince"}: true,
	{typ[proof.Answers](), "lastAnswers"}: true,
	{typ[fleet.Fleet](), "scanned"}:       true, {typ[fleet.Fleet](), "changed"}: true,
	{typ[fleet.Fleet](), "distrustRecords"}: true,
	{typ[fleet.Fleet](), "renewed"}:         true, {typ[fleet.Fleet](), "outage"}: true,
	{typ[evict.Memory](), "taintTimes"}: true,
	{typ[taint.Look](), "Name"}:         true, {typ[taint.Look](), "UID"}: true, {typ[taint.Look](), "Labels"}: true,
	{typ[taint.Look](), "MarkedBy"}: true,
	{typ[taint.Look](), "Unproven"}: true, {typ[taint.Look](), "RecordErr"}: true, {typ[taint.Look](), "Taints"}: true,
	{typ[action.Pod](), "Namespace"}: true, {typ[action.Pod](), "Name"}: true, {typ[action.Pod](), "Labels"}: true,
	{typ[action.Pod](), "Owner"}:         true,
	{typ[fence.Memory](), "announcedID"}: true, {typ[fence.Memory](), "inherited"}: true,
	{typ[action.Pod](), "Message"}: true, {typ[action.Pod](), "Tolerations"}: true,
}

// skippedByName are the same of types that are not exported.
var skippedByName = map[string]bool{"fleet.node.recordAt": true, "fleet.node.seenVersion": true,
	"fleet.node.seenAt": true, "fleet.node.uid": true,
	"fleet.node.recordVersion": true, "fleet.node.sights": true, "fleet.node.since": true,
	"fleet.node.first": true, "fleet.node.counted": true,
	"fleet.node.name": true, "fleet.scope.sick": true}

// writtenByName are fields of types that are not exported, with a form of their own. Of a sign of life it counts only
// whether it came since the look.
var writtenByName = map[string]writer{
	"fleet.node.beat": sinceLook, "fleet.node.alive": sinceLook,
	"fleet.node.boot": func(k *key, p unsafe.Pointer) { k.id(idOf(*(*string)(p))) },
}

func sinceLook(k *key, p unsafe.Pointer) { k.bools((*providers.Instant)(p).Wall.After(k.sent)) }

// ofLook are fields that the next look overwrites.
var ofLook = map[field]bool{
	{typ[decide.Node](), "look"}: true, {typ[decide.Node](), "pods"}: true, {typ[decide.Node](), "atts"}: true,
	{typ[decide.Node](), "boundClaims"}: true,
}

// written are types and fields with a form of their own.
var (
	types = map[reflect.Type]writer{
		typ[time.Time](): func(k *key, p unsafe.Pointer) { k.time(*(*time.Time)(p)) },
		// both clocks agree here
		typ[providers.Instant](): func(k *key, p unsafe.Pointer) { k.time((*providers.Instant)(p).Wall) },
		typ[time.Duration](): func(k *key, p unsafe.Pointer) {
			k.buf = append(k.buf, byte(*(*time.Duration)(p)/grain))
		},
		typ[taint.Record](): func(k *key, p unsafe.Pointer) { k.record((*taint.Record)(p)) },
		typ[providers.Answer](): func(k *key, p unsafe.Pointer) {
			a := (*providers.Answer)(p)
			k.buf = append(k.buf, byte(a.State))
			k.bools(a.Err != nil)
			k.time(a.At.Wall)
			k.time(a.Got.Wall)
		},
	}
	fields = map[field]writer{
		{typ[fence.Memory](), "FirstLook"}: func(k *key, p unsafe.Pointer) { // which life
			l := (*taint.Look)(p)
			k.id(idOf(l.BootID))
			k.id(idOf(l.LeaseRV))
			k.time(l.Got.Wall)
		},
		{typ[taint.Look](), "ResourceVersion"}: func(k *key, p unsafe.Pointer) { k.version(idOf(*(*string)(p))) },
		{typ[action.Pod](), "ResourceVersion"}: func(k *key, p unsafe.Pointer) { k.version(idOf(*(*string)(p))) },
		{typ[proof.Answers](), "Misses"}: func(k *key, p unsafe.Pointer) {
			k.buf = append(k.buf, byte(min(*(*int)(p), 6)))
		},
	}
)

// The writers of the two memories. kept and worked are lists that serve for a moment: old ones are none.
var (
	course, flock = plan(typ[decide.Node]()), plan(typ[fleet.Fleet]())
	keptAt        = offset(typ[decide.Node](), "kept", "at")
	workedAt      = offset(typ[decide.Node](), "worked")
)

// serves is how long a list may serve (decide.keptHolds, and more than workHolds).
const serves = 3 * time.Second

func init() {
	for name, at := range map[string]uintptr{
		"kept": keptAt, "work": workedAt, "worked": workedAt, "workPods": workedAt} {
		f, _ := typ[decide.Node]().FieldByName(name)
		whole := plan(f.Type)
		fields[field{typ[decide.Node](), name}] = func(k *key, p unsafe.Pointer) {
			node := unsafe.Add(p, -int(f.Offset))
			if k.now.Sub((*providers.Instant)(unsafe.Add(node, at)).Wall) <= serves || k.live {
				whole(k, p)
			}
		}
	}
	course = plan(typ[decide.Node]())
}

// offset is where a field of a field lies.
func offset(t reflect.Type, path ...string) (at uintptr) {
	for _, name := range path {
		f, ok := t.FieldByName(name)
		if !ok {
			panic(fmt.Sprintf("explore: %s has no field %s any more", t, name))
		}
		at, t = at+f.Offset, f.Type
	}
	return at
}

// plan makes the writer of a type.
func plan(t reflect.Type) writer {
	if w := types[t]; w != nil {
		return w
	}
	switch t.Kind() {
	case reflect.Struct:
		return planStruct(t)
	case reflect.Pointer:
		elem := plan(t.Elem())
		return func(k *key, p unsafe.Pointer) {
			to := *(*unsafe.Pointer)(p)
			if k.bools(to != nil); to != nil {
				elem(k, to)
			}
		}
	case reflect.Slice:
		elem, size := plan(t.Elem()), int(t.Elem().Size())
		return func(k *key, p unsafe.Pointer) {
			s := *(*[]byte)(p) // the header alone is read
			k.buf = append(k.buf, byte(len(s)))
			at := unsafe.Pointer(unsafe.SliceData(s))
			for i := range len(s) {
				elem(k, unsafe.Add(at, i*size))
			}
		}
	case reflect.Map:
		return planMap(t)
	case reflect.String:
		return func(k *key, p unsafe.Pointer) {
			s := *(*string)(p)
			if i := idOf(s); i != 0 {
				k.id(i)
				return
			}
			k.buf = append(append(k.buf, s...), 0)
		}
	case reflect.Interface:
		return func(k *key, p unsafe.Pointer) { k.bools(*(*unsafe.Pointer)(p) != nil) }
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Float64:
		size := t.Size()
		return func(k *key, p unsafe.Pointer) { k.buf = append(k.buf, unsafe.Slice((*byte)(p), size)...) }
	default:
		panic(fmt.Sprintf("explore: no key for %s", t))
	}
}

func planStruct(t reflect.Type) writer {
	type part struct {
		at     uintptr
		write  writer
		ofLook bool
	}
	var parts []part
	for i := range t.NumField() {
		f := t.Field(i)
		name := field{t, f.Name}
		if skipped[name] || skippedByName[t.String()+"."+f.Name] {
			continue
		}
		w := fields[name]
		if w == nil {
			w = writtenByName[t.String()+"."+f.Name]
		}
		if w == nil {
			w = plan(f.Type)
		}
		parts = append(parts, part{f.Offset, w, ofLook[name]})
	}
	return func(k *key, p unsafe.Pointer) {
		for _, f := range parts {
			if !f.ofLook || k.live {
				f.write(k, unsafe.Add(p, f.at))
			}
		}
	}
}

// planNamed writes a map from strings to pointers.
func planNamed(t reflect.Type) writer {
	elem := plan(t.Elem().Elem())
	return func(k *key, p unsafe.Pointer) {
		m := *(*map[string]unsafe.Pointer)(p)
		k.buf = append(k.buf, byte(len(m)))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			k.buf = append(append(k.buf, name...), 0)
			elem(k, m[name])
		}
	}
}

// planMap writes a map in the order of its keys as they print: they are few.
func planMap(t reflect.Type) writer {
	if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.Pointer {
		return planNamed(t)
	}
	kw, vw := plan(t.Key()), plan(t.Elem())
	return func(k *key, p unsafe.Pointer) {
		m := reflect.NewAt(t, p).Elem()
		k.buf = append(k.buf, byte(m.Len()))
		if m.Len() == 0 {
			return
		}
		keys := m.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, one := range keys {
			kp, vp := reflect.New(t.Key()), reflect.New(t.Elem())
			kp.Elem().Set(bare(one))
			vp.Elem().Set(bare(m.MapIndex(one)))
			kw(k, kp.UnsafePointer())
			vw(k, vp.UnsafePointer())
		}
	}
}

// bare lifts the ban on values that were read from unexported fields.
func bare(v reflect.Value) reflect.Value {
	if v.CanInterface() {
		return v
	}
	p := reflect.New(v.Type())
	switch v.Kind() {
	case reflect.String:
		p.Elem().SetString(v.String())
	default:
		panic(fmt.Sprintf("explore: no bare %s", v.Type()))
	}
	return p.Elem()
}

// cloneFleet copies a fleet, with all that its methods change in place.
func cloneFleet(f *fleet.Fleet) *fleet.Fleet {
	n := *f
	copier{}.deep(reflect.ValueOf(&n).Elem())
	return &n
}

// copier copies what is changed in place. Two ways to the same thing lead to the same copy.
type copier map[unsafe.Pointer]reflect.Value

// shared are pointers' types to what is never changed.
var shared = map[reflect.Type]bool{typ[*taint.Record](): true, typ[*fleet.Limits](): true, typ[*time.Location](): true}

// holds reports which types hold something that may be changed in place.
var holds = map[reflect.Type]bool{}

func init() { findHolds(typ[fleet.Fleet]()) }

func findHolds(t reflect.Type) bool {
	if done, ok := holds[t]; ok {
		return done
	}
	holds[t] = true // where a type leads to itself, it is by a pointer
	h := false
	switch t.Kind() {
	case reflect.Map, reflect.Slice:
		findHolds(t.Elem())
		h = true
	case reflect.Pointer:
		if h = !shared[t]; h {
			findHolds(t.Elem())
		}
	case reflect.Struct:
		for i := range t.NumField() {
			h = findHolds(t.Field(i).Type) || h
		}
	}
	holds[t] = h
	return h
}

// deep replaces all that an addressable value leads to by copies.
func (c copier) deep(v reflect.Value) {
	t := v.Type()
	if !holds[t] {
		return
	}
	v = reflect.NewAt(t, v.Addr().UnsafePointer()).Elem() // unexported fields can be set, too
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			c.deep(v.Field(i))
		}
	case reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
			return
		}
		n := reflect.MakeMapWithSize(t, v.Len())
		for it := v.MapRange(); it.Next(); {
			e := reflect.New(t.Elem()).Elem()
			e.Set(it.Value())
			c.deep(e)
			n.SetMapIndex(it.Key(), e)
		}
		v.Set(n)
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
			return
		}
		n := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(n, v)
		for i := range n.Len() {
			c.deep(n.Index(i))
		}
		v.Set(n)
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		n, ok := c[v.UnsafePointer()]
		if !ok {
			n = reflect.New(t.Elem())
			n.Elem().Set(v.Elem())
			c[v.UnsafePointer()] = n
			c.deep(n.Elem())
		}
		v.Set(n)
	}
}
