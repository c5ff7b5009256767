package config

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/features/signing"
)

// check checks the values of a decoded file, and parses its selectors and templates.
func (r *reader) check(c *Config) {
	oneOf(r, "mode", c.Mode, modes...)
	oneOf(r, "onDetachTimeout", c.OnDetachTimeout, detachActions...)
	oneOf(r, "manualMarks", c.ManualMarks, Refuse, Trust)
	r.taintKey("taintKey", c.TaintKey)
	r.grace("powerOffAfter", c.PowerOffAfter)
	r.atLeast("powerOffTimeout", c.PowerOffTimeout, 5*time.Second)
	r.atLeast("detachTimeout", c.DetachTimeout, 10*time.Second)
	c.evictFirst = r.selector("evictFirst", c.EvictFirst, labels.Nothing())
	c.excluded = r.selector("excludeSelector", c.ExcludeSelector, labels.Nothing())
	r.warnOfImpossible(c, "evictFirst", c.evictFirst)
	r.warnOfImpossible(c, "excludeSelector", c.excluded)
	r.reportIf(c.MaintenanceLeases != "" && len(validation.IsDNS1123Label(c.MaintenanceLeases)) > 0,
		"maintenanceLeases", "no namespace can have this name: use a-z, 0-9 and -")
	r.checkRemediation(c)
	r.checkReleaseLeases(c)
	r.checkKarpenter(c)
	r.checkStorm(c)
	r.warnOfVMHosts(c)
	r.warnOfCautions(c)
	r.reportIf(c.Lines.Port < 0 || c.Lines.Port > 65535, "lines.port", "must be a port, from 1 to 65535, or 0 for no "+
		"lines")
	r.listen(c.Listen)
	r.leaderElection(c)
	r.checkSigning(c)
	for i := range c.Providers {
		r.checkProvider(c, i)
	}
	for i := range c.Nodes {
		r.checkRule(c, i)
	}
	r.warnOfUnused(c)
	r.warnOfSharedPower(c)
	r.warnOfReadOnly(c)
	r.warnOfPeopleAlone(c)
	for i := range c.Storage { // policies and drains use its items
		r.checkStorage(c, i)
	}
	for i := range c.Policies {
		r.checkPolicy(c, i)
	}
	for i := range c.Drain {
		r.checkDrain(c, i)
	}
	r.listedTwice(c)
	r.checkSecrets()
	r.checkOwnSecrets()
	r.checkModes(c)
	r.warnOfShortLease(c)
	r.checkAfterFence(c)
	r.warnOfOverlap(c) // last: a rule with another fault may have a selector that is not meant
}

// oneOf reports a value that is not one of the words.
func oneOf[T ~string](r *reader, path string, have T, words ...T) {
	if all := spelled(words); !slices.Contains(words, have) {
		hint := didYouMean(string(have), all)
		if off := fence.Disabled.String(); slices.Contains(all, off) && slices.Contains(wordsForOff, string(have)) {
			hint = fmt.Sprintf(": did you mean %q?", off)
		}
		r.report(path, "must be %s%s", either(all), hint)
	}
}

// wordsForOff are what a mode is called elsewhere that does nothing.
var wordsForOff = []string{"off", "none", "no", "never", "false"}

func spelled[T ~string](words []T) []string {
	return mapList(words, func(w T) string { return string(w) })
}

// either returns "a, b or c".
func either(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (r *reader) atLeast(path string, have, least time.Duration) {
	r.reportIf(have < least, path, "must be at least %s", short(least))
}

// short writes 5m, not 5m0s.
func short(d time.Duration) string { return zeroUnits.ReplaceAllString(d.String(), "$1") }

var zeroUnits = regexp.MustCompile(`(h|m)(0m)?0s$`)

func (r *reader) taintKey(path, key string) {
	if len(validation.IsQualifiedName(key)) > 0 {
		r.report(path, "no taint can have this key: it must look like example.net/name")
		return
	}
	domain, _, _ := strings.Cut(key, "/")
	for _, theirs := range []string{"kubernetes.io", "k8s.io"} {
		r.reportIf(domain != key && (domain == theirs || strings.HasSuffix(domain, "."+theirs)), path,
			"keys under %s belong to Kubernetes: use another", theirs)
	}
}

// selector parses a label selector. It returns empty for "".
func (r *reader) selector(path, text string, empty labels.Selector) labels.Selector {
	if strings.TrimSpace(text) == "" {
		return empty
	}
	sel, err := labels.Parse(text)
	if err != nil {
		r.report(path, "not a label selector, such as %s: %s", selectorExample, explainSelector(text, err))
		return labels.Nothing()
	}
	return sel
}

// explainSelector says what is wrong with a selector, in the library's words where they are plain.
func explainSelector(text string, err error) string {
	words := strings.NewReplacer("unable to parse requirement: ", "", "found ''", "the text ends").Replace(err.Error())
	m := invalidValue.FindStringSubmatch(words)
	switch {
	case m == nil:
		return oneLine(words)
	case strings.ContainsAny(text, "“”„‘’"):
		return "remove the quotes that are no plain ones"
	case strings.Contains(m[1], ":"):
		return "write = between a label and its value, not a colon"
	}
	return fmt.Sprintf("no label has %s as its key or value: use letters, digits, -, _ and .", oneLine(m[1]))
}

var invalidValue = regexp.MustCompile(`Invalid value: ("(?:[^"\\]|\\.)*")`)

func (r *reader) listen(l Listen) {
	r.address("listen.metrics", l.Metrics)
	r.address("listen.status", l.Status)
	host, port, err := net.SplitHostPort(l.Status)
	if err != nil {
		return // none, or reported
	}
	r.reportIf(port != "0" && l.Status == l.Metrics, "listen.status", "another server has this address: use another")
	switch {
	case (l.StatusCertFile == "") != (l.StatusKeyFile == ""):
		r.report("listen.status", "statusCertFile and statusKeyFile go together")
	case l.StatusCertFile == "" && !loopback(host):
		r.report("listen.status", "would send users' tokens over the network unencrypted: set statusCertFile and "+
			"statusKeyFile, or listen on 127.0.0.1 (for kubectl port-forward)")
	case l.StatusCertFile != "" && !r.skipFiles:
		if _, err := tls.LoadX509KeyPair(l.StatusCertFile, l.StatusKeyFile); err != nil {
			r.report("listen.statusCertFile", "no certificate with its key: %s", oneLine(err.Error()))
		}
	}
}

// checkSigning checks the key that signs records. A fence needs none, so a file that has none is a warning.
func (r *reader) checkSigning(c *Config) {
	file := c.Signing.KeyFile
	switch {
	case file == "":
	case !r.skipFiles:
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = signing.ParseSigner(text)
		}
		if err != nil {
			r.warn(c, "signing.keyFile", "records are not signed until it has a key: "+oneLine(err.Error()))
		}
	}
}

// loopback reports whether the address is reachable from this machine only.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (r *reader) address(path, addr string) {
	if addr == "" {
		return
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		r.report(path, `must be host:port, or "" for no server`)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		r.report(path, "the port must be a number from 0 to 65535")
	}
	r.reportIf(port == HealthPort, path, "port %s is that of health: use another", port)
}

func (r *reader) leaderElection(c *Config) {
	const path = "leaderElection."
	l := c.LeaderElection
	if !l.Enabled {
		r.warn(c, path+"enabled", "without it every controller that runs acts: run exactly one")
	}
	r.atLeast(path+"leaseDuration", l.LeaseDuration, time.Second)
	r.atLeast(path+"retryPeriod", l.RetryPeriod, 100*time.Millisecond)
	r.reportIf(l.LeaseDuration > time.Hour, path+"leaseDuration", "must be at most 1h: no controller leads for that "+
		"long after a leader died")
	r.reportIf(l.LeaseDuration%time.Second != 0, path+"leaseDuration", "must be whole seconds, as in a Lease")
	r.reportIf(l.RenewDeadline >= l.LeaseDuration, path+"renewDeadline", "must be shorter than leaseDuration (%s): "+
		"two could lead at once", short(l.LeaseDuration))
	if l.RetryPeriod >= l.RenewDeadline/6*5 { // client-go adds up to 20 % to a retry
		r.report(path+"retryPeriod", "1.2 times it must be shorter than renewDeadline (%s)", short(l.RenewDeadline))
	}
}

// warnOfShortLease warns if another controller may lead before a power action of this one arrives. A leader sends it at
// most renewDeadline after its last renewal, and the provider's timeout ends the request. Another controller leads
// after leaseDuration. It is no fault: other limits bound a late power action.
func (r *reader) warnOfShortLease(c *Config) {
	l := c.LeaderElection
	if !l.Enabled || !c.fences() || len(c.Providers) == 0 {
		return
	}
	slowest := slices.MaxFunc(c.Providers, func(a, b Provider) int { return cmp.Compare(a.Timeout, b.Timeout) })
	least := l.RenewDeadline + slowest.Timeout
	if l.LeaseDuration >= least {
		return
	}
	whole := (least + time.Second - 1).Truncate(time.Second)
	r.warn(c, "leaderElection.leaseDuration", fmt.Sprintf("another controller may lead before a power action of "+
		"this one arrives. Use at least %s: renewDeadline (%s) plus the timeout of provider %s (%s)",
		short(whole), short(l.RenewDeadline), slowest.Name, short(slowest.Timeout)))
}

// checkName checks the name of item i of a list with these names.
func (r *reader) checkName(list string, i int, names []string) {
	name, path := names[i], item(list, i)+".name"
	switch j := slices.Index(names, name); {
	case name == "" && list == "providers" && i > 0 && r.providers[item(list, i-1)].Type == "":
		r.report(path, "missing. If this type belongs to the item above, write it without the -, at the column of its "+
			"name")
	case name == "":
		r.report(path, "missing")
	case len(validation.IsDNS1123Label(name)) > 0:
		r.report(path, "must be a DNS label: at most 63 of a-z, 0-9 and -, with no - at the ends")
	case j < i:
		r.report(path, "%q is already the name of %s, on line %d", name, item(list, j), r.lines[item(list, j)])
	}
}

func (r *reader) checkProvider(c *Config, i int) {
	p, path := c.Providers[i], item("providers", i)
	r.checkName("providers", i, c.providerNames())
	if p.Timeout < 100*time.Millisecond || p.Timeout > proof.TTL {
		r.report(path+".timeout", "must be from 100ms to %s: an answer older than %[1]s proves nothing", proof.TTL)
	} else if s, ok := p.Config.(providers.Slow); ok {
		least := s.TimeToOff() + time.Second
		// no timeout may exceed the TTL: then Validate reports the setting that is too long
		r.reportIf(p.Timeout < least && least <= proof.TTL, path+".timeout", "must be at least %s: these devices "+
			"take %s to report that a machine is off", least, s.TimeToOff())
	}
	r.reportIf(p.RatePerSecond <= 0 || p.RatePerSecond > 1000, path+".ratePerSecond",
		"must be more than 0 and at most 1000")
	r.reportIf(p.Concurrency < 1 || p.Concurrency > 100, path+".concurrency", "must be from 1 to 100")
	r.reportIf(p.Poll != 0 && (p.Poll < time.Second || p.Poll > time.Hour), path+".poll",
		"must be from 1s to 1h, or 0s for not at all")
}

func (c *Config) providerNames() []string {
	return mapList(c.Providers, func(p Provider) string { return p.Name })
}

// settings returns the settings of the provider of that name; nil if there is none.
func (c *Config) settings(provider string) providers.Config {
	if i := slices.Index(c.providerNames(), provider); i >= 0 {
		return c.Providers[i].Config
	}
	return nil
}

func (r *reader) checkRule(c *Config, i int) {
	n, path := &c.Nodes[i], item("nodes", i)
	r.checkName("nodes", i, mapList(c.Nodes, func(n NodeRule) string { return n.Name }))
	switch {
	case n.Mode != "":
		oneOf(r, path+".mode", n.Mode, modes...)
	case r.given(path + ".mode"):
		r.report(path+".mode", "must be %s; without the key the mode above applies", either(spelled(modes)))
	}
	n.selector = r.selector(path+".selector", n.Selector, labels.Everything())
	r.warnOfImpossible(c, path+".selector", n.selector)
	if !r.bad[path+".selector"] && implies(withCommonLabels(n.selector), c.excluded) {
		r.warn(c, path, fmt.Sprintf("every node of this rule also matches excludeSelector (%s), so all of them are "+
			"left alone: correct one of the two", c.ExcludeSelector))
	}
	r.checkLevels(c, i)
}

// warnOfImpossible warns of a selector in the file that nothing can match.
func (r *reader) warnOfImpossible(c *Config, path string, s labels.Selector) {
	_, selects := s.Requirements() // "" may be meant: it is none
	if r.given(path) && selects && !s.Empty() && apart(s, labels.Everything()) && !r.bad[path] {
		r.warn(c, path, "nothing can match this: all parts of a selector must match. One label with one of several "+
			`values is "rack in (a, b)"`)
	}
}

// soundSettings returns the settings of the provider of that name; nil if there is none, or if its file has faults that
// may change how its machines are named.
func (r *reader) soundSettings(c *Config, provider string) providers.Config {
	i := slices.Index(c.providerNames(), provider)
	for path := range r.bad {
		if i >= 0 && strings.HasPrefix(path, item("providers", i)+"."+c.Providers[i].Type+".") {
			return nil
		}
	}
	return c.settings(provider)
}

// warnOfUnused warns of providers that no rule uses.
func (r *reader) warnOfUnused(c *Config) {
	used := map[string]bool{}
	for i := range c.Nodes {
		used[c.Nodes[i].Provider] = true
		for _, d := range c.Nodes[i].devices() {
			used[d.Provider] = true
		}
		for _, h := range c.Nodes[i].Within {
			used[h.Provider] = true
		}
	}
	for i, p := range c.Providers {
		if !used[p.Name] {
			r.warn(c, item("providers", i), fmt.Sprintf("no rule under nodes uses the provider %s, so none of its "+
				"devices is asked. Name it in a rule (provider: %s), in a rule's levels, or remove it", p.Name, p.Name))
		}
	}
}

// checkMachine checks a device of a rule: its provider, and how it finds machines.
func (r *reader) checkMachine(c *Config, n *NodeRule, provider string, s *Source, path string) {
	settings := r.soundSettings(c, provider)
	s.ids, _ = settings.(providers.IDs)
	of, ok := settings.(providers.ProviderIDs)
	s.whole = ok && of.ProviderIDs()
	r.checkProviderName(c, provider, path+".provider")
	r.checkSource(s, path+".machine")
	r.checkTemplate(c, n, s, path+".machine")
	r.checkAllow(s, path+".machine.allow", settings != nil)
	r.warnOfNames(c, provider, s, path+".machine")
	r.checkListed(c, provider, s, path+".machine")
	if list := path + ".machine.list"; s.From == FromList && r.given(list) && len(s.List) == 0 {
		r.warn(c, list, "the list is empty, so no node has this device: write - {node: n1, id: ...} for each node")
	}
}

// warnOfNames warns if a Node's name leads to a machine, and the machine's device cannot detect a Node that took the
// name of another one.
func (r *reader) warnOfNames(c *Config, provider string, s *Source, path string) {
	if !s.hasTemplate() || s.ids == nil {
		return
	}
	i := slices.Index(c.providerNames(), provider) // there is one: it gave s its ids
	if typ, _ := r.reg.FindType(c.Providers[i].Type); strings.HasPrefix(typ.Identity, "none") {
		r.warn(c, path,
			"a Node's creator chooses its name, and devices of type "+typ.Name+" do not identify their machine: "+
				"a Node with another's name gets that machine. Use a list: only its nodes get a machine")
	}
}

// warnOfCautions warns of settings of providers and storage systems that are allowed but risky.
func (r *reader) warnOfCautions(c *Config) {
	for i, p := range c.Providers {
		settings, ok := p.Config.(providers.Cautious)
		if !ok {
			continue
		}
		for _, problem := range settings.Cautions() {
			r.warn(c, join(item("providers", i)+"."+p.Type, problem.Path), problem.Text)
		}
	}
	for i, s := range c.Storage {
		if s.REST == nil {
			continue
		}
		for _, problem := range s.REST.Cautions() {
			r.warn(c, join(item("storage", i)+".rest", problem.Path), problem.Text)
		}
	}
}

// warnOfReadOnly warns of providers whose settings exclude power-offs that a rule with mode fence sends through them.
func (r *reader) warnOfReadOnly(c *Config) {
	for i, p := range c.Providers {
		settings, ok := p.Config.(providers.ReadOnly)
		if !ok || !c.powersOffThrough(p.Name) {
			continue
		}
		if problem := settings.NoPowerActions(); problem != nil {
			at := join(item("providers", i)+"."+p.Type, problem.Path)
			r.warn(c, at, "mode fence powers machines off. "+problem.Text)
		}
	}
}

// warnOfPeopleAlone warns of rules with mode fence that have a person, and no device.
func (r *reader) warnOfPeopleAlone(c *Config) {
	inModes := slices.ContainsFunc(c.Modes, func(m ModeItem) bool { return m.Mode.mayPowerOff() })
	for i := range c.Nodes {
		n := &c.Nodes[i]
		names := mapList(n.devices(), func(d *Device) string { return d.Provider })
		if n.Provider != "" {
			names = append(names, n.Provider)
		}
		isDevice := func(name string) bool {
			settings := c.settings(name)
			_, personal := settings.(providers.Personal)
			return settings == nil || !personal // a provider with a fault is reported as such
		}
		mayPowerOff := inModes || cmp.Or(n.Mode, c.Mode).mayPowerOff()
		if len(names) > 0 && mayPowerOff && !slices.ContainsFunc(names, isDevice) {
			r.warn(c, item("nodes", i), "mode fence powers machines off, and this rule has no device that can. "+
				"Nothing says Off without a person (type confirm). Add a device, or use mode observe")
		}
	}
}

// checkProviderName checks that there is a provider of that name.
func (r *reader) checkProviderName(c *Config, provider, path string) {
	switch have := c.providerNames(); {
	case provider == "":
		r.report(path, "missing: it names one of providers")
	case len(have) == 0 && !r.bad["providers"]:
		r.report(path, "no such provider: the file has none. Add it under providers")
	case !slices.Contains(have, provider) && !r.unsureOfNames(len(have)):
		r.report(path, "no such provider%s", Hint(provider, have))
	}
}

// checkAllow checks which hosts a rule's IDs may name. The rule needs allow if a node influences the IDs: its kubelet
// could name a host of its own, which would get the password. known: the provider has settings.
func (r *reader) checkAllow(s *Source, path string, known bool) {
	for i, e := range s.Allow {
		if problem := s.allowed.add(e); problem != "" {
			r.report(item(path, i), "%s", problem)
		}
	}
	switch given := r.given(path); {
	case given && s.From == FromList:
		r.report(path, "has no effect on a list, because the list has the IDs")
	case given && known && (s.ids == nil || !s.ids.HasAddressIDs()):
		r.report(path, "has no effect: the IDs of this provider are no addresses")
	case !s.isRead():
	case s.listedHosts() && s.claimed(): // checkClaim refuses the rule
	case s.namesHosts() && s.hasTemplate() && len(s.Allow) > 0:
		hosts, bound := s.tmpl.hosts(s.ids)
		r.reportIf(bound && !hosts.meets(s.allowed) && !r.bad[path], path, "has none of the hosts that the template "+
			"can give, so no node has this device: correct one of them, or remove allow")
	case s.namesHosts() && s.hasTemplate():
		if hosts, bound := s.tmpl.hosts(s.ids); bound {
			s.allowed = hosts
			return
		}
		r.report(path, "missing: a Node's creator chooses its name and labels, and so which host gets the password. "+
			"Write your domain behind the last placeholder (https://{name}.bmc.example.net), or use a list, or "+
			"write the allowed hosts, *.domains, IPs or CIDRs here")
	case s.namesHosts() && len(s.Allow) == 0:
		r.report(path, "missing: a kubelet can change what this uses, so write which hosts, *.domains, IPs or CIDRs "+
			"may get the password")
	}
}

// checkClaim refuses a rule by which a kubelet may choose the host that gets the password, if the devices do not
// identify themselves.
func (r *reader) checkClaim(n *NodeRule, path string) {
	r.reportIf(n.Machine.isRead() && n.Machine.listedHosts() && n.claimed(), path+".machine",
		"a kubelet could choose the host that gets the password, by its labels or its own status, and this "+
			"provider's devices do not identify themselves: use a list, or a template over {name} and a selector of "+
			"labels that kubelets cannot write (node-restriction.kubernetes.io/...)")
}

// unsureOfNames reports whether a fault hides the name of one of the n providers. A rule may then name that one.
func (r *reader) unsureOfNames(n int) bool {
	for i := range n {
		if p := item("providers", i); r.bad[p] || r.bad[p+".name"] {
			return true
		}
	}
	return r.bad["providers"]
}

// checkSource checks how a rule finds machines: from says how, and the file may have only the settings of that way.
func (r *reader) checkSource(s *Source, path string) {
	if s.From == "" {
		r.report(path+".from", "missing: one of %s", strings.Join(spelled(sources), ", "))
		return
	}
	oneOf(r, path+".from", s.From, sources...)
	for _, part := range []struct {
		key  string
		of   From
		need bool
	}{
		{"annotation", FromAnnotation, true},
		{"template", FromTemplate, true},
		{"list", FromList, true},
		{"part", FromProviderID, false},
	} {
		switch given := r.given(path + "." + part.key); {
		case given && part.of != s.From && slices.Contains(sources, s.From):
			r.report(path+"."+part.key, `belongs to "from: %s"`, part.of)
		case !given && part.need && part.of == s.From:
			r.report(path+"."+part.key, `missing: "from: %s" needs it`, part.of)
		}
	}
	switch s.From {
	case FromSystemUUID:
		if s.needsID() {
			r.report(path+".from", "gives no node a device: this provider does not find machines by their system "+
				"UUID, but needs an ID. Use %s", either(spelled(sources[1:])))
		}
	case FromProviderID:
		switch {
		case s.Part == "" && s.whole:
			s.Part = All
		case s.Part == "":
			s.Part = Last
		case s.Part == Last && s.whole:
			r.report(path+".part", "this provider uses whole providerIDs as IDs: write all, or remove it")
		}
		oneOf(r, path+".part", s.Part, Last, All)
	case FromAnnotation:
		at := path + ".annotation"
		r.reportIf(r.given(at) && len(validation.IsQualifiedName(strings.ToLower(s.Annotation))) > 0, at,
			"no annotation can have this key: it must look like example.net/name")
	case FromName:
		s.tmpl, _ = parseTemplate(providers.NamePlaceholder)
	case FromTemplate:
		if !r.given(path + ".template") {
			return
		}
		var err error
		if s.tmpl, err = parseTemplate(s.Template); err != nil {
			r.report(path+".template", "%s", oneLine(err.Error()))
		}
	case FromList:
		for i, e := range s.List {
			r.checkListItem(s, e, item(path+".list", i))
		}
	}
}

// needsID reports whether the provider finds no machine by its system UUID.
func (s *Source) needsID() bool {
	if s.ids == nil {
		return false
	}
	_, _, err := s.ids.CanonicalID("")
	return err != nil
}

func (r *reader) checkListItem(s *Source, e Listed, path string) {
	if e.Node == "" {
		r.report(path+".node", "missing: the node's name")
	} else if len(validation.IsDNS1123Subdomain(e.Node)) > 0 {
		r.report(path+".node", "no node can have this name")
	}
	if strings.TrimSpace(e.ID) == "" {
		r.report(path+".id", "missing: the provider's name of the machine")
	} else if _, err := s.canonical(strings.TrimSpace(e.ID)); err != nil {
		r.report(path+".id", "%s", oneLine(strings.TrimPrefix(err.Error(), ErrNoID.Error()+": its ID ")))
	}
}

// listedTwice finds nodes and machines that are in lists more than once, in one rule or in several.
func (r *reader) listedTwice(c *Config) {
	type machine struct{ provider, id string }
	nodes, machines := map[string]int{}, map[machine]int{}
	look := func(provider string, s *Source, path string, nodes map[string]int) {
		if s.From != FromList {
			return
		}
		for j, e := range s.List {
			at := item(path+".machine.list", j)
			if first, twice := nodes[e.Node]; twice && e.Node != "" {
				r.report(at+".node", "%s is already listed on line %d", oneLine(e.Node), first)
			} else {
				nodes[e.Node] = r.lines[at]
			}
			id, err := s.canonical(strings.TrimSpace(e.ID))
			if err != nil {
				continue // checkListItem has reported it
			}
			for _, part := range s.parts(id) {
				m := machine{provider, part}
				if first, twice := machines[m]; twice && m.id != "" {
					r.report(at+".id", "another node already has this machine, on line %d", first)
					break
				}
				machines[m] = r.lines[at]
			}
		}
	}
	for i := range c.Nodes {
		n, path := &c.Nodes[i], item("nodes", i)
		look(n.Provider, &n.Machine, path, nodes)
		for j := range n.Levels {
			for k := range n.Levels[j].Devices {
				d := &n.Levels[j].Devices[k]
				look(d.Provider, &d.Machine, item(item(path+".levels", j)+".devices", k), map[string]int{})
			}
		}
	}
}
