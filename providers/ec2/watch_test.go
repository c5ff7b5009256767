package ec2_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/cloud"
	"github.com/forcefence/forcefence/test/kit"
)

// watcher is a provider with queues.
type watcher interface {
	providers.Provider
	providers.Watcher
	Close(context.Context) error
}

// newWatcher makes a provider that reads these queues, and tries again soon.
func newWatcher(t testing.TB, queues ...*cloud.Queue) (watcher, *kit.Log) {
	t.Helper()
	c := ec2.NewConfig()
	c.Regions = []string{"eu-west-1"}
	for _, q := range queues {
		c.Queues = append(c.Queues, q.URL())
	}
	return makeWatcher(t, c)
}

func makeWatcher(t testing.TB, c *ec2.Config) (watcher, *kit.Log) {
	t.Helper()
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	c.Agree = agree
	said := &kit.Log{}
	p, err := c.New(
		providers.Options{Name: "aws",
			Log: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	w := p.(watcher)
	ec2.Hasten(w)
	t.Cleanup(func() { _ = w.Close(t.Context()) })
	return w, said
}

func named(node string, i *cloud.Instance, address string) providers.Target {
	tg := target(i, address)
	tg.Node = node
	return tg
}

// A Watch reports the targets' events and no others, and deletes all of them. It also reports what does not run at
// the beginning.
func TestWatch(t *testing.T) {
	c := newCloud(t)
	q := c.AddQueue("eu-west-1", "forcefence")
	stops := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1", Stops: 50 * time.Millisecond})
	goes := c.Add(cloud.Options{Zone: "eu-west-1b", Address: "10.0.0.2"})
	down := c.Add(cloud.Options{Zone: "eu-west-1b", Address: "10.0.0.3"})
	runs := c.Add(cloud.Options{Zone: "eu-west-1b", Address: "10.0.0.4"})
	foreign := c.Add(cloud.Options{Zone: "eu-west-1b", Address: "10.0.0.5"})
	down.CutPower()
	q.Follow(0)
	p, said := newWatcher(t, q)
	reports, stop := providertest.StartWatch(t, p, named("stops", stops, "10.0.0.1"), named("goes", goes, "10.0.0.2"),
		named("down", down, "10.0.0.3"), named("runs", runs, "10.0.0.4"),
		providers.Target{Node: "odd", ID: "i-0123"}, providers.Target{Node: "nothing"})
	seen := providertest.AwaitReports(t, reports, "down Off stopped")
	foreign.CutPower()
	for _, body := range []string{
		"", "{}", "not JSON", `{"source":"aws.ec2"}`, q.Event(stops.ID(), "exploded", time.Now()),
		strings.Repeat("x", 100<<10)} {
		q.Send(body)
	}
	for _, state := range []string{"pending", "running"} {
		q.Send(q.Event(runs.ID(), state, time.Now()))
	}
	q.Send(q.Event(runs.ID(), "stopped", time.Now().Add(-11*time.Minute))) // it was started since
	stops.Stop()
	seen = append(seen, providertest.AwaitReports(t, reports, "stops Off event: stopped")...)
	goes.Terminate()
	seen = append(seen, providertest.AwaitReports(t, reports, "goes Off event: terminated")...)
	kit.Until(t, "an empty queue", func() bool { return q.Len() == 0 })
	stop()
	for x := range reports {
		seen = append(seen, x)
	}
	for _, x := range seen {
		if node, _, _ := strings.Cut(x, " "); node == "runs" || node == "nothing" || node == "odd" ||
			strings.Contains(x, " On ") {
			t.Errorf("got the report %q", x)
		}
	}
	if log := said.String(); !strings.Contains(log, "Deleted messages that are not EventBridge events") ||
		strings.Contains(log, "exploded") {
		t.Errorf("the log says %s", log)
	}
	if n := q.Polls(); n != 0 {
		kit.Until(t, "no receiver", func() bool { return q.Polls() == 0 })
	}
	q.Send(q.Event(stops.ID(), "stopped", time.Now()))
	if q.Received() != q.Deleted() {
		t.Errorf("received %d, deleted %d", q.Received(), q.Deleted())
	}
}

// After each kind of trouble with a queue, the Watch reports what it missed, and then events again.
func TestWatchGoesOn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault cloud.QueueFault
		logs  string
	}{
		{"gone", cloud.QueueFault{Gone: true}, "no such queue"},
		{"denied", cloud.QueueFault{Fault: cloud.Fault{Denied: "ReceiveMessage"}},
			"need sqs:ReceiveMessage and sqs:DeleteMessage"},
		{"its key is denied", cloud.QueueFault{Fault: cloud.Fault{Code: "KmsAccessDenied"}}, "kms:Decrypt"},
		{"no answer", cloud.QueueFault{Fault: cloud.Fault{Drop: true}}, "receive from queue forcefence"},
		{"silent", cloud.QueueFault{Fault: cloud.Fault{Silent: true}}, "receive from queue forcefence"},
		{"half an answer", cloud.QueueFault{Fault: cloud.Fault{Half: true}}, "receive from queue forcefence"},
		{"busy", cloud.QueueFault{Fault: cloud.Fault{Status: 503}}, "receive from queue forcefence"},
		{"throttled", cloud.QueueFault{Fault: cloud.Fault{Code: "RequestThrottled"}}, "RequestThrottled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ec2.BriefAnswers(t)
			c := newCloud(t)
			q := c.AddQueue("eu-west-1", "forcefence")
			// an answer that a busy machine was too slow for comes again
			whole := cloud.QueueFault{Hidden: 100 * time.Millisecond}
			q.SetFault(whole)
			i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
			p, said := newWatcher(t, q)
			reports, _ := providertest.StartWatch(t, p, target(i, "10.0.0.1"))
			kit.Until(t, "a receiver", func() bool { return q.Polls() > 0 })
			q.Send(q.Event(i.ID(), "stopping", time.Now()))
			providertest.AwaitReports(t, reports, "n1 Changing event: stopping")
			kit.Until(t, "an empty queue", func() bool { return q.Len() == 0 })
			q.SetFault(tt.fault)
			kit.Until(t, "the log", func() bool { return strings.Contains(said.String(), tt.logs) })
			i.CutPower() // and no event
			q.SetFault(whole)
			providertest.AwaitReports(t, reports, "n1 Off stopped")
			q.Send(q.Event(i.ID(), "terminated", time.Now()))
			providertest.AwaitReports(t, reports, "n1 Off event: terminated")
			kit.Until(t, "an empty queue", func() bool { return q.Len() == 0 })
			log := said.String()
			if strings.Contains(log, "secret") || !strings.Contains(log, "can be read again") {
				t.Errorf("the log says %s", log)
			}
			if n := strings.Count(log, "Cannot read the queue"); n > 3 {
				t.Errorf("the log says %d times that the queue cannot be read", n)
			}
		})
	}
}

// Messages that cannot be deleted come again and again, and make us ask once a second at most. So do those that come
// twice, and a flood.
func TestWatchFlood(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault cloud.QueueFault
		sends int
		logs  string
	}{
		{"a deletion is denied",
			cloud.QueueFault{Fault: cloud.Fault{Denied: "DeleteMessageBatch"}, Hidden: time.Millisecond}, 20,
			"need sqs:ReceiveMessage and sqs:DeleteMessage"},
		{"deletions fail", cloud.QueueFault{Keeps: true, Hidden: time.Millisecond}, 20,
			"were not deleted: InternalError"},
		{"each comes twice", cloud.QueueFault{Twice: true}, 200, ""},
		{"a thousand", cloud.QueueFault{}, 1000, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			q := c.AddQueue("eu-west-1", "forcefence")
			i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
			q.SetFault(tt.fault)
			for range tt.sends {
				q.Send(q.Event(i.ID(), "stopped", time.Now()))
			}
			p, said := newWatcher(t, q)
			begun := time.Now()
			reports, stop := providertest.StartWatch(t, p, target(i, "10.0.0.1"))
			kit.Until(t, "all read", func() bool { return q.Received() >= tt.sends })
			if tt.logs == "" {
				kit.Until(t, "an empty queue", func() bool { return q.Len() == 0 })
			} else {
				kit.Until(t, "the log", func() bool { return strings.Contains(said.String(), tt.logs) })
			}
			stop()
			most, n := 1+int(time.Since(begun)/time.Second), 0
			for range reports {
				n++
			}
			if n < 1 || n > most {
				t.Errorf("reported %d times, want from 1 to %d", n, most)
			}
		})
	}
}

// Messages of great size, several at once, neither fill the memory nor keep an event behind them from being read.
func TestWatchGiants(t *testing.T) {
	ec2.ShortAnswers(t)
	c := newCloud(t)
	q := c.AddQueue("eu-west-1", "forcefence")
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
	q.SetFault(cloud.QueueFault{Hidden: 100 * time.Millisecond})
	q.Send(q.Event(i.ID(), "stopped", time.Now())) // the last that is received
	for range 3 {
		q.Send(strings.Repeat("\x01", 17<<10)) // six bytes each, on the wire
	}
	p, said := newWatcher(t, q)
	reports, _ := providertest.StartWatch(t, p, target(i, "10.0.0.1"))
	providertest.AwaitReports(t, reports, "n1 Off event: stopped")
	kit.Until(t, "an empty queue", func() bool { return q.Len() == 0 })
	if !strings.Contains(said.String(), "answer is too large") {
		t.Errorf("the log says %s", said)
	}
}

// A service that does not wait for messages is not asked more than about once a second.
func TestWatchHastyQueue(t *testing.T) {
	c := newCloud(t)
	q := c.AddQueue("eu-west-1", "forcefence")
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
	q.SetFault(cloud.QueueFault{Hasty: true})
	p, _ := newWatcher(t, q)
	begun := time.Now()
	reports, stop := providertest.StartWatch(t, p, target(i, "10.0.0.1"))
	kit.Until(t, "questions", func() bool { return c.Calls("eu-west-1", "ReceiveMessage") >= 3 })
	q.Send(q.Event(i.ID(), "stopped", time.Now()))
	providertest.AwaitReports(t, reports, "n1 Off event: stopped")
	stop()
	if n, most := c.Calls("eu-west-1", "ReceiveMessage"), 3+int(time.Since(begun)/time.Second); n > most {
		t.Errorf("%d questions, want at most %d", n, most)
	}
}

// Two watches at once: each hears of its own targets, whichever of them received the message; one that has ended hears
// nothing.
func TestTwoWatches(t *testing.T) {
	c := newCloud(t)
	q := c.AddQueue("eu-west-1", "forcefence")
	one := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
	two := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.2"})
	p, _ := newWatcher(t, q)
	a, stop := providertest.StartWatch(t, p, named("one", one, "10.0.0.1"))
	b, _ := providertest.StartWatch(t, p, named("one", one, "10.0.0.1"), named("two", two, "10.0.0.2"))
	kit.Until(t, "two receivers", func() bool { return q.Polls() == 2 })
	for range 10 {
		q.Send(q.Event(one.ID(), "stopped", time.Now()))
		q.Send(q.Event(two.ID(), "stopped", time.Now()))
	}
	providertest.AwaitReports(t, a, "one Off event: stopped")
	providertest.AwaitReports(t, b, "one ", "two ")
	stop()
	// As at AWS, a poll whose client has gone may receive one more message, which is hidden from others for a while.
	kit.Until(t, "one receiver, and nothing to receive", func() bool { return q.Len() == 0 && q.Polls() == 1 })
	q.Send(q.Event(one.ID(), "terminated", time.Now()))
	providertest.AwaitReports(t, b, "one Off event: terminated")
	for x := range a {
		if !strings.HasPrefix(x, "one ") {
			t.Errorf("got the report %q", x)
		}
	}
}

// One queue for each region; that one of them is gone does not keep the other from being read.
func TestWatchTwoRegions(t *testing.T) {
	c := newCloud(t)
	q := c.AddQueue("eu-west-1", "forcefence")
	cfg := ec2.NewConfig()
	cfg.Regions, cfg.Queues = []string{"eu-west-1"}, []string{q.URL() + "-typo", q.URL()}
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
	p, said := makeWatcher(t, cfg)
	reports, _ := providertest.StartWatch(t, p, target(i, "10.0.0.1"))
	kit.Until(t, "the log",
		func() bool { return strings.Contains(said.String(), "receive from queue forcefence-typo") })
	q.Send(q.Event(i.ID(), "stopped", time.Now()))
	providertest.AwaitReports(t, reports, "n1 Off event: stopped")
}

// Credentials that are wrong, and that become right.
func TestWatchCredentials(t *testing.T) {
	c := newCloud(t)
	q := c.AddQueue("eu-west-1", "forcefence")
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
	p, said := newWatcher(t, q)
	c.Revoke()
	q.Send(q.Event(i.ID(), "stopped", time.Now()))
	_, stop := providertest.StartWatch(t, p, target(i, "10.0.0.1"))
	kit.Until(t, "the log",
		func() bool { return strings.Contains(said.String(), "InvalidSecurity: the credentials need") })
	stop()
	if q.Received() != 0 {
		t.Error("a client without credentials received a message")
	}
}

// Without queues it is no Watcher: otherwise its Watch would fail every half a minute.
func TestNoQueues(t *testing.T) {
	newCloud(t)
	c := ec2.NewConfig()
	c.Regions = []string{"eu-west-1"}
	p, err := c.New(providers.Options{Name: "aws"})
	if err != nil {
		t.Fatal(err)
	}
	if _, is := p.(providers.Watcher); is {
		t.Error("it is a Watcher")
	}
	_ = p.(providers.Closer).Close(t.Context())
}

func TestValidateQueues(t *testing.T) {
	const good = "https://sqs.eu-west-1.amazonaws.com/123456789012/forcefence"
	for _, tt := range []struct {
		queues  []string
		regions string
		want    string
	}{
		{[]string{good}, "eu-west-1", ""},
		{[]string{good, "https://sqs.us-west-2.amazonaws.com/123456789012/forcefence"}, "eu-west-1 us-west-2", ""},
		{[]string{"https://sqs-fips.us-gov-west-1.amazonaws.com/123456789012/forcefence.fifo"}, "us-gov-west-1", ""},
		{[]string{"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/f"}, "cn-north-1", ""},
		{[]string{"https://vpce-0a1b-xyz.sqs.eu-west-1.vpce.amazonaws.com/123456789012/f"}, "eu-west-1", ""},
		{[]string{"https://sqs.eu-west-1.api.aws/123456789012/f"}, "eu-west-1", ""},
		{[]string{"https://queue.example.net:8443/123456789012/f"}, "eu-west-1", ""},
		{[]string{"http://127.0.0.1:4100/123456789012/f"}, "eu-west-1", ""},

		{[]string{good, good}, "eu-west-1", "queues[1]: is listed already"},
		{[]string{good}, "us-west-2", "queues[0]: is in a region that is not among regions"},
		{[]string{"https://sqs.cn-north-1.amazonaws.com/123456789012/f"}, "cn-north-1",
			"queues[0]: belongs to another partition than its region"},
		{[]string{"https://sqs.eu-west-1.amazonaws.com.cn/123456789012/f"}, "eu-west-1",
			"queues[0]: belongs to another partition than its region"},
		{[]string{"https://sqs.eu-west-1.amazonaws.com.evil.example/123456789012/f"}, "eu-west-1 us-west-2",
			"queues[0]: does not contain its region, as AWS' own addresses do: write one provider for each region"},
		{[]string{"https://queue.example.net/123456789012/f"}, "eu-west-1 us-west-2",
			"queues[0]: does not contain its region, as AWS' own addresses do: write one provider for each region"},
		{[]string{"http://sqs.eu-west-1.amazonaws.com/123456789012/f"}, "eu-west-1",
			"queues[0]: is not https://: the password would go over the network in the clear (see allowHTTP)"},
		{[]string{"https://u:p@sqs.eu-west-1.amazonaws.com/123456789012/f"}, "eu-west-1",
			"queues[0]: holds credentials: use username and passwordFile"},
		{[]string{"arn:aws:sqs:eu-west-1:123456789012:f"}, "eu-west-1",
			"queues[0]: is no address: write https://host[:port]"},
		{[]string{"https://sqs.eu-west-1.amazonaws.com/f"}, "eu-west-1",
			"queues[0]: is not a queue: write its URL, as in " +
				"https://sqs.eu-west-1.amazonaws.com/123456789012/forcefence"},
		{[]string{"https://sqs.eu-west-1.amazonaws.com/123456789012/%66"}, "eu-west-1",
			"queues[0]: is not a queue: write its URL, as in " +
				"https://sqs.eu-west-1.amazonaws.com/123456789012/forcefence"},
		{[]string{"https://sqs.eu-west-1.amazonaws.com/123456789012/a%2fb"}, "eu-west-1",
			"queues[0]: is not a queue: write its URL, as in " +
				"https://sqs.eu-west-1.amazonaws.com/123456789012/forcefence"},
		{[]string{good + "?Action=DeleteQueue"}, "eu-west-1",
			"queues[0]: has a query or fragment: write https://host[:port]"},
	} {
		c := ec2.NewConfig()
		c.Regions, c.Queues = strings.Fields(tt.regions), tt.queues
		got := ""
		for _, p := range c.Validate() {
			got += p.Path + ": " + p.Text
		}
		if got != tt.want {
			t.Errorf("%v in %s: got %q, want %q", tt.queues, tt.regions, got, tt.want)
		}
	}
}

// FuzzEvent: a message names an instance and a state in exactly their own words, or it is not an event.
func FuzzEvent(f *testing.F) {
	q := &cloud.Queue{}
	f.Add(q.Event("i-0123456789abcdef0", "stopped", time.Now()))
	f.Add(`{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification",` +
		`"time":"2026-01-02T03:04:05Z","detail":{"instance-id":"i-0123\u0000","state":"stopped"}}`)
	f.Add(`{"source":"aws.ec2","detail":{"instance-id":["i-0123456789abcdef0"]}}`)
	f.Add(strings.Repeat("[", 20_000))
	f.Fuzz(func(t *testing.T, body string) {
		id, state, err := ec2.ParseEvent(body)
		if err != nil {
			return
		}
		known := map[string]bool{"pending": true, "running": true, "stopping": true, "stopped": true,
			"shutting-down": true, "terminated": true}
		if len(body) > ec2.LongestEvent || !known[state] || strings.Trim(id, "i-0123456789abcdef") != "" {
			t.Errorf("got %q, %q of %q", id, state, body)
		}
	})
}

// TestEventOf compares with what AWS documents (monitoring-instance-state-changes, with its spaces and an id of the
// right length).
func TestEventOf(t *testing.T) {
	id, state, err := ec2.ParseEvent(`{
    "id": "7bf73129-1428-4cd3-a780-95db273d1602",
    "detail-type": "EC2 Instance State-change Notification",
    "source": "aws.ec2",
    "account": "123456789012",
    "time": "2021-11-11T21:29:54Z",
    "region": "us-east-1",
    "resources": ["arn:aws:ec2:us-east-1:123456789012:instance/i-1234567890abcdef0"],
    "detail": {"instance-id": "i-1234567890abcdef0", "state": "stopping"}
}`)
	if got := fmt.Sprint(id, " ", state, " ", err); got != "i-1234567890abcdef0 stopping <nil>" {
		t.Errorf("got %s", got)
	}
}

// TestLongEvent: a message that is longer than any event is not one.
func TestLongEvent(t *testing.T) {
	event := (&cloud.Queue{}).Event("i-0123456789abcdef0", "stopped", time.Now())
	if _, _, err := ec2.ParseEvent(event); err != nil {
		t.Errorf("got %v", err)
	}
	if _, _, err := ec2.ParseEvent(event + strings.Repeat(" ", ec2.LongestEvent)); err == nil {
		t.Error("a message of any length is read")
	}
}
