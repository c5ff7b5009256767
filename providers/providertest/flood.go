package providertest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

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

// FloodFaults returns the floods that the counterpart's protocol can have.
func (p *Proxy) FloodFaults() []Fault {
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
