package ec2_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/cloud"
	"github.com/forcefence/forcefence/test/kit"
)

// goAws is a queue of GoAws, an SQS that others wrote, and another client of it.
type goAws struct {
	t      *testing.T
	url    string // of the queue, through what counts
	queue  *string
	client *sqs.Client

	mu      sync.Mutex // guards what follows
	polls   int        // that wait now, without the other client's
	longest time.Duration
}

func newGoAws(t *testing.T) *goAws {
	t.Helper()
	program := filepath.Join(t.TempDir(), "goaws")
	kit.GoBuild(t, filepath.Join("..", "..", "test", "cloud", "goaws"), ".", program)
	cmd := exec.Command(program)
	out, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, kit.StartChild(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	kit.Must(t, err)
	at, err := url.Parse(strings.TrimSpace(address))
	kit.Must(t, err)

	g := &goAws{t: t, queue: aws.String(at.String() + "/123456789012/forcefence")}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	g.client = sqs.New(sqs.Options{
		Region: "eu-west-1", BaseEndpoint: aws.String(at.String()), HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	})
	g.create()
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.Transport, proxy.ErrorLog = transport, log.New(io.Discard, "", 0) // a poll that is given up
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Target") == "AmazonSQS.ReceiveMessage" {
			defer g.poll()()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	g.url = front.URL + "/123456789012/forcefence"
	return g
}

// poll counts a long poll until its end.
func (g *goAws) poll() (end func()) {
	begun := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.polls++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.polls--
		g.longest = max(g.longest, time.Since(begun))
	}
}

func (g *goAws) untilPolled() {
	g.t.Helper()
	kit.Until(g.t, "a receiver", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.polls > 0
	})
}

func (g *goAws) create() {
	g.t.Helper()
	_, err := g.client.CreateQueue(g.t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("forcefence")})
	kit.Must(g.t, err)
}

func (g *goAws) send(body string) {
	g.t.Helper()
	_, err := g.client.SendMessage(g.t.Context(), &sqs.SendMessageInput{QueueUrl: g.queue, MessageBody: &body})
	kit.Must(g.t, err)
}

// untilEmpty waits until all messages are deleted, those included that are hidden.
func (g *goAws) untilEmpty() {
	g.t.Helper()
	kit.Until(g.t, "an empty queue", func() bool {
		const left = types.QueueAttributeNameApproximateNumberOfMessages
		a, err := g.client.GetQueueAttributes(g.t.Context(),
			&sqs.GetQueueAttributesInput{QueueUrl: g.queue, AttributeNames: []types.QueueAttributeName{left}})
		kit.Must(g.t, err)
		return a.Attributes[string(left)] == "0"
	})
}

// A real queue: EventBridge's messages are reported and deleted, and others are deleted; one
// long poll waits after the other; what another reader took along comes when it is shown again; and a queue that is
// gone and comes back is read as ever.
func TestWatchGoAws(t *testing.T) {
	c, g := newCloud(t), newGoAws(t)
	one := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.1"})
	two := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.0.2"})
	event := func(i *cloud.Instance, state string) string { return (&cloud.Queue{}).Event(i.ID(), state, time.Now()) }

	g.send(event(one, "stopping"))
	taken := time.Now()
	out, err := g.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: g.queue, VisibilityTimeout: 3})
	if err != nil || len(out.Messages) != 1 {
		t.Fatalf("another reader received %v, %v", out, err)
	}
	cfg := ec2.NewConfig()
	cfg.Regions, cfg.Queues = []string{"eu-west-1"}, []string{g.url}
	p, said := makeWatcher(t, cfg)
	reports, stop := providertest.StartWatch(t, p, named("one", one, "10.0.0.1"), named("two", two, "10.0.0.2"),
		providers.Target{Node: "nothing"})
	providertest.AwaitReports(t, reports, "one Changing event: stopping")
	if took := time.Since(taken); took < 3*time.Second {
		t.Errorf("reported after %s what another reader has for 3 s", took)
	}
	g.untilEmpty()

	for range 25 { // more than one answer has
		for _, body := range []string{
			"{}", "not JSON", (&cloud.Queue{}).Event("i-0ffffffffffffffff", "stopped", time.Now()),
			event(two, "exploded"), strings.Repeat("x", 100<<10)} {
			g.send(body)
		}
	}
	g.untilEmpty()
	kit.Until(t, "a poll for which there is nothing", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.longest >= 900*time.Millisecond
	})
	g.untilPolled()
	g.send(event(one, "terminated"))
	seen := providertest.AwaitReports(t, reports, "one Off event: terminated")
	g.untilEmpty()

	_, err = g.client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: g.queue})
	kit.Must(t, err)
	kit.Until(t, "the log",
		func() bool { return strings.Contains(said.String(), "there is no such queue at this address") })
	two.CutPower() // without an event
	g.create()
	seen = append(seen, providertest.AwaitReports(t, reports, "two Off stopped")...)
	g.send(event(one, "stopped"))
	seen = append(seen, providertest.AwaitReports(t, reports, "one Off event: stopped")...)
	g.untilEmpty()
	stop()
	for _, x := range seen {
		if !strings.HasPrefix(x, "one ") && x != "two Off stopped" {
			t.Errorf("got the report %q", x)
		}
	}
	for _, want := range []string{"Deleted messages that are not EventBridge events", "Queue can be read again"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log does not say %q: %s", want, said)
		}
	}
}
