package providertest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Flood is the device's own part of a flood: within its protocol it answers with as much as it can, as many members of
// each list as possible, and text of any length. A Bench without one ignores it.
const Flood Fault = "flood"

// The floods that a Proxy creates by itself. NoFault ends them.
const (
	floodHeader  Fault = "header without end"
	floodInterim Fault = "informational answers without end"
	floodBody    Fault = "body without end"
	floodPacked  Fault = "body without end, packed" // small until it is unpacked
	floodValues  Fault = "very many values"         // in a whole document
	floodDepth   Fault = "very deep nesting"        // likewise
	floodStream  Fault = "stream without end"
)

var httpFloods = []Fault{floodHeader, floodInterim, floodBody, floodPacked, floodValues, floodDepth}

const (
	// floodMost is the maximum that a connection is sent: more than a budget, and no more than an agent in a process of
	// its own may keep.
	floodMost = 64 << 20
	// floodDocument is the size of a whole document. It is below most limits of bytes, so that it reaches a limit of
	// values.
	floodDocument = 900_000
)

// floodFaults returns the floods that the counterpart's protocol can have.
func (p *Proxy) floodFaults() []Fault {
	if p.opts.HTTP {
		return httpFloods
	}
	return []Fault{floodStream}
}

func isFlood(f Fault) bool { return f == floodStream || slices.Contains(httpFloods, f) }

// packed is one part of a gzip stream: a MiB of blanks. It may come any number of times.
var packed = func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
	_ = w.Close()
	return b.Bytes()
}()

// list is how a protocol writes a list, and a value in another.
type list struct{ begin, member, end, open, close string }

// listOf chooses the protocol by the request: vSphere's SOAP, EC2's Query API, or JSON.
func listOf(r *http.Request) list {
	switch kind := r.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/xml"):
		return list{
			begin: `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>` +
				`<RetrievePropertiesExResponse xmlns="urn:vim25"><returnval>`,
			member: "<objects/>",
			end:    "</returnval></RetrievePropertiesExResponse></Body></Envelope>",
			open:   "<a>",
			close:  "</a>",
		}
	case strings.HasPrefix(kind, "application/x-www-form-urlencoded"):
		return list{
			begin:  "<DescribeInstancesResponse><reservationSet><item><instancesSet>",
			member: "<item/>",
			end:    "</instancesSet></item></reservationSet></DescribeInstancesResponse>",
			open:   "<a>",
			close:  "</a>",
		}
	}
	return list{begin: `{"Members":[{}`, member: ",{}", end: "]}", open: "[", close: "]"}
}

// floodHTTP answers one request with a flood, on its own connection, which ends with it.
func floodHTTP(w http.ResponseWriter, r *http.Request, f Fault) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer c.Close()
	const ok = "HTTP/1.1 200 OK\r\n"
	l := listOf(r)
	switch f {
	case floodHeader:
		writeFlood(c, ok, func(i int) string { return fmt.Sprintf("X%d: %d\r\n", i, i) })
	case floodInterim:
		hint := "HTTP/1.1 103 Early Hints\r\n" + strings.Repeat("Link: </a>\r\n", 1000) + "\r\n"
		writeFlood(c, hint, func(int) string { return hint })
	case floodBody:
		text := strings.Repeat("x", 1<<10)
		writeFlood(c, ok+"\r\n"+l.begin+`"`, func(int) string { return text })
	case floodPacked:
		piece := string(packed)
		writeFlood(c, ok+"Content-Encoding: gzip\r\n\r\n", func(int) string { return piece })
	case floodValues:
		writeDocument(c, l.begin, l.member, "", l.end)
	case floodDepth:
		writeDocument(c, "", l.open, l.close, "")
	}
}

// writeFlood writes until the client has disconnected, or has received floodMost bytes.
func writeFlood(c io.Writer, begin string, part func(i int) string) {
	w := bufio.NewWriterSize(c, 16<<10)
	_, err := w.WriteString(begin)
	for i, n := 0, 0; err == nil && n < floodMost; i++ {
		s := part(i)
		n += len(s)
		_, err = w.WriteString(s)
	}
	_ = w.Flush()
}

// writeDocument writes one document: as many of one part as there is room for, then as many of the other.
func writeDocument(c io.Writer, begin, one, other, end string) {
	n := (floodDocument - len(begin) - len(end)) / (len(one) + len(other))
	w := bufio.NewWriterSize(c, 16<<10)
	_, _ = fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s",
		len(begin)+n*(len(one)+len(other))+len(end), begin)
	for _, part := range []string{one, other} {
		for range n {
			_, _ = w.WriteString(part)
		}
	}
	_, _ = w.WriteString(end)
	_ = w.Flush()
}

// floodConn sends the flood of a stream: words that may be lengths of just below a MiB. With TLS it is inside.
func (p *Proxy) floodConn(c net.Conn, cfg *tls.Config) {
	if p.opts.TLS {
		secure := tls.Server(c, cfg)
		if secure.HandshakeContext(context.Background()) != nil { // the gate closes it with the flood
			return
		}
		c = secure
	}
	words := strings.Repeat("\x00\x0f\xff\xf0", 256)
	writeFlood(c, "", func(int) string { return words })
}

// withinBudget checks that, for any answer of the device, a call takes and keeps no more memory, and starts no more
// goroutines, than Options.Memory, Kept and Goroutines. Ordinary answers are measured first.
func withinBudget(ctx context.Context, b *Bench, o Options) error {
	// what is measured is what is in use, and little that is not any more
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	floods := []Fault{NoFault, Flood}
	if b.Proxy != nil {
		floods = append(floods, b.Proxy.floodFaults()...)
	}
	if err := waitForState(ctx, b, o, providers.PowerOn); err != nil {
		return err
	}
	for _, f := range floods {
		set := b.SetFault
		if isFlood(f) {
			set = b.Proxy.SetFault
		}
		before := measureUsage()
		peak := watchPeak(before)
		set(f)
		err := callFlooded(ctx, b, o)
		most := peak()
		set(NoFault)
		if err == nil {
			err = waitRecovered(ctx, b, o)
		}
		after := measureUsage()
		switch mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }; {
		case err != nil:
			return fmt.Errorf("%s: %w", f, err)
		case most.heap-before.heap > o.Memory:
			return fmt.Errorf("%s: took %s, want %s at most", f, mib(most.heap-before.heap), mib(o.Memory))
		case after.heap-before.heap > o.Kept:
			return fmt.Errorf("%s: kept %s, want %s at most", f, mib(after.heap-before.heap), mib(o.Kept))
		case most.goroutines-before.goroutines > o.Goroutines:
			return fmt.Errorf("%s: started %d goroutines, want %d at most", f, most.goroutines-before.goroutines,
				o.Goroutines)
		}
	}
	return nil
}

// callFlooded makes each call once. Whatever the results, a running machine is not off.
func callFlooded(ctx context.Context, b *Bench, o Options) error {
	if a := askState(ctx, b, o, b.Target); a.State == providers.PowerOff && b.Running() {
		return errors.New("the provider says Off while the machine runs")
	}
	for _, call := range []action{b.Provider.PowerOff, b.Provider.PowerOn} {
		_ = runPower(ctx, o, call, b.Target)
	}
	return nil
}

// waitRecovered restores the machine: an accepted power action may still be in progress.
func waitRecovered(ctx context.Context, b *Bench, o Options) (err error) {
	for end := time.Now().Add(o.Settle); time.Now().Before(end); {
		b.SetPower(true)
		if err = expectState(ctx, b, o, providers.PowerOn); err == nil {
			return nil
		}
	}
	return fmt.Errorf("afterwards: %w", err)
}

// usage is the memory and goroutines of the process.
type usage struct{ heap, goroutines int64 }

func (u usage) maxUsage(v usage) usage {
	return usage{max(u.heap, v.heap), max(u.goroutines, v.goroutines)}
}

// sampleUsage returns what is in use, including what the garbage collector has not freed yet.
func sampleUsage() usage {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(s)
	return usage{int64(s[0].Value.Uint64()), int64(s[1].Value.Uint64())}
}

// measureUsage returns what is in use. The second collection frees what pools held.
func measureUsage() usage {
	runtime.GC()
	runtime.GC()
	return sampleUsage()
}

// watchPeak samples the use every millisecond, and returns a function that returns the maximum.
func watchPeak(from usage) (peak func() usage) {
	stop, result := make(chan struct{}), make(chan usage)
	go func() { // ends with peak
		most := from
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			most = most.maxUsage(sampleUsage())
			select {
			case <-tick.C:
			case <-stop:
				result <- most
				return
			}
		}
	}()
	return func() usage {
		close(stop)
		return <-result
	}
}
