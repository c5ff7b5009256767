package cloud

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Queue is a queue of SQS in one region, as its public API reference describes it: AWS JSON 1.0, and long polls. A
// message that was received is hidden from others for a while, and comes again unless it was deleted. There is no
// order. It is safe for concurrent use.
type Queue struct {
	c            *Cloud
	region, path string

	// all below is guarded by Cloud.mu
	messages []*message
	came     chan struct{} // closed when something changes that a long poll waits for
	fault    QueueFault
	received int
	deleted  int
	polls    int // that wait now
}

// QueueFault is what is wrong with a queue. The zero value is healthy.
type QueueFault struct {
	Fault                // Silent, Drop, Half, Status, Code and Denied count here
	Gone   bool          // there is no such queue
	Hasty  bool          // it does not wait for a message
	Keeps  bool          // a deletion fails, each message with its own error
	Twice  bool          // each message is received twice
	Hidden time.Duration // a received message comes again after this; zero: after what the receiver asks for
}

type message struct {
	body    string
	sent    time.Time
	visible time.Time // from then on it can be received
	handle  string    // of the last time it was
}

// AddQueue makes a queue.
func (c *Cloud) AddQueue(region, name string) *Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &Queue{c: c, region: region, path: "/123456789012/" + name, came: make(chan struct{})}
	c.queues = append(c.queues, q)
	return q
}

// URL is the queue's.
func (q *Queue) URL() string { return q.c.url + q.path }

// Follow makes a rule of EventBridge: what becomes of the region's instances from now on is sent to the queue, that
// long after it happened.
func (q *Queue) Follow(after time.Duration) {
	q.c.locked(func() { q.c.rules = append(q.c.rules, rule{q, after}) })
}

type rule struct {
	to    *Queue
	after time.Duration
}

// Event is what EventBridge writes about an instance.
func (q *Queue) Event(id, state string, at time.Time) string {
	return fmt.Sprintf(
		`{"version":"0","id":"%x","detail-type":"EC2 Instance State-change Notification","source":"aws.ec2",`+
			`"account":"123456789012","time":%q,"region":%q,`+
			`"resources":["arn:aws:ec2:%s:123456789012:instance/%s"],"detail":{"instance-id":%q,"state":%q}}`,
		md5.Sum([]byte(id+state+at.String())), at.UTC().Format(time.RFC3339), q.region, q.region, id, id, state)
}

// Send puts a message in.
func (q *Queue) Send(body string) { q.c.locked(func() { q.send(body) }) }

// send is Send with the lock held.
func (q *Queue) send(body string) {
	now := time.Now()
	q.messages = append(q.messages, &message{body: body, sent: now, visible: now})
	q.wake()
}

func (q *Queue) wake() {
	close(q.came)
	q.came = make(chan struct{})
}

// Len is how many messages are in it, received or not.
func (q *Queue) Len() (n int) { q.c.locked(func() { n = len(q.messages) }); return n }

// Received and Deleted count messages, each time they are.
func (q *Queue) Received() (n int) { q.c.locked(func() { n = q.received }); return n }

// Deleted counts those that were deleted.
func (q *Queue) Deleted() (n int) { q.c.locked(func() { n = q.deleted }); return n }

// Polls is how many receivers wait for a message now.
func (q *Queue) Polls() (n int) { q.c.locked(func() { n = q.polls }); return n }

// SetFault replaces the fault at once.
func (q *Queue) SetFault(f QueueFault) {
	q.c.locked(func() { q.fault = f; q.wake() })
}

// changes has the rules report a state that an instance has from a moment on. The lock is held.
func (i *Instance) changes(t Told) {
	for _, r := range i.c.rules {
		if i.c.zones[i.zone] != r.to.region {
			continue
		}
		time.AfterFunc(time.Until(t.At.Add(r.after)), func() {
			i.c.locked(func() {
				if i.happened(t) {
					r.to.send(r.to.Event(i.o.ID, t.State, t.At))
				}
			})
		})
	}
}

// happened reports whether a state that was to come did. The lock is held.
func (i *Instance) happened(t Told) bool {
	for _, h := range i.history {
		if h.At.Equal(t.At) && h.State == t.State {
			return true
		}
	}
	return false
}

// queueRequest is all that the actions take.
type queueRequest struct {
	QueueURL                    string `json:"QueueUrl"`
	MaxNumberOfMessages         int
	VisibilityTimeout           int
	WaitTimeSeconds             int
	MessageSystemAttributeNames []string
	Entries                     []struct {
		ID            string `json:"Id"`
		ReceiptHandle string
	}
}

type queueMessage struct {
	MessageID     string `json:"MessageId"`
	ReceiptHandle string
	Body          string
	MD5OfBody     string
	Attributes    map[string]string `json:",omitempty"`
}

type queueOutcome struct {
	ID          string `json:"Id"`
	Code        string `json:",omitempty"`
	SenderFault bool   `json:",omitempty"`
}

// serveQueue answers one request of SQS.
func (c *Cloud) serveQueue(w http.ResponseWriter, r *http.Request, action string, body []byte) {
	who := readScope(r)
	var in queueRequest
	err := json.Unmarshal(body, &in)
	c.mu.Lock()
	c.calls = append(c.calls, who.region+" "+action)
	no := c.authenticate(r, body, who)
	var q *Queue
	for _, one := range c.queues {
		if one.URL() == in.QueueURL && one.region == who.region {
			q = one
		}
	}
	f := QueueFault{}
	if q != nil {
		f = q.fault
	}
	c.mu.Unlock()
	refuse := func(status int, code, legacy, text string) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amzn-Query-Error", legacy+";Sender")
		w.WriteHeader(status)
		// the client may have gone
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": text})
	}
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Silent:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		http.Error(w, "<html>busy</html>", f.Status)
		return
	case f.Code != "":
		refuse(http.StatusBadRequest, f.Code, f.Code, "It is as it is.")
		return
	case err != nil || r.Header.Get("Content-Type") != "application/x-amz-json-1.0" || who.service != "sqs":
		refuse(http.StatusBadRequest, "InvalidRequest", "InvalidRequest", "The request received was invalid.")
		return
	case no != nil:
		refuse(http.StatusForbidden, "InvalidSecurity", "InvalidSecurity", no.Message)
		return
	case q == nil || f.Gone:
		refuse(http.StatusBadRequest, "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue",
			"The specified queue does not exist.")
		return
	case f.Denied == "*" || f.Denied == action:
		refuse(http.StatusForbidden, "AccessDeniedException", "AccessDenied",
			"User: arn:aws:sts::123456789012:assumed-role/secret-role/x is not authorized to perform: sqs:"+action+
				" on resource: arn:aws:sqs:x")
		return
	}
	var out any
	switch action {
	case "ReceiveMessage":
		if in.MaxNumberOfMessages < 1 || in.MaxNumberOfMessages > 10 || in.WaitTimeSeconds > 20 {
			refuse(http.StatusBadRequest, "InvalidParameterValue", "InvalidParameterValue",
				"Value for parameter is invalid.")
			return
		}
		out = map[string]any{"Messages": q.receive(r, in)}
	case "DeleteMessageBatch":
		if len(in.Entries) < 1 || len(in.Entries) > 10 {
			refuse(http.StatusBadRequest, "TooManyEntriesInBatchRequest",
				"AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "Not from 1 to 10.")
			return
		}
		done, failed := q.delete(in)
		out = map[string]any{"Successful": done, "Failed": failed}
	default:
		refuse(http.StatusBadRequest, "UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation",
			"No such action.")
		return
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // types of ours
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if f.Half {
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		text = text[:len(text)/2]
	}
	_, _ = w.Write(text) // the client may have gone
}

// receive waits for messages as long as the receiver wants it.
func (q *Queue) receive(r *http.Request, in queueRequest) (out []queueMessage) {
	deadline := time.NewTimer(time.Duration(in.WaitTimeSeconds) * time.Second)
	defer deadline.Stop()
	q.c.locked(func() { q.polls++ })
	defer q.c.locked(func() { q.polls-- })
	for {
		var came chan struct{}
		var hasty bool
		q.c.locked(func() {
			out, came, hasty = q.take(in), q.came, q.fault.Hasty || q.fault.Drop
		})
		if len(out) > 0 || hasty {
			return out
		}
		again := time.NewTimer(20 * time.Millisecond) // a message may become visible
		select {
		case <-came:
			if q.faulty() {
				again.Stop()
				return nil
			}
		case <-again.C:
		case <-deadline.C:
			again.Stop()
			return nil
		case <-r.Context().Done():
			again.Stop()
			return nil
		}
		again.Stop()
	}
}

func (q *Queue) faulty() (f bool) {
	q.c.locked(func() { f = q.fault != QueueFault{} })
	return f
}

// take receives what is visible, the last first. The lock is held.
func (q *Queue) take(in queueRequest) (out []queueMessage) {
	now := time.Now()
	for i := len(q.messages) - 1; i >= 0 && len(out) < in.MaxNumberOfMessages; i-- {
		m := q.messages[i]
		if m.visible.After(now) {
			continue
		}
		hidden := q.fault.Hidden
		if hidden == 0 {
			hidden = time.Duration(in.VisibilityTimeout) * time.Second
		}
		m.visible, m.handle = now.Add(hidden), rand.Text()
		sum := md5.Sum([]byte(m.body))
		one := queueMessage{MessageID: rand.Text(), ReceiptHandle: m.handle, Body: m.body,
			MD5OfBody: hex.EncodeToString(sum[:])}
		for _, name := range in.MessageSystemAttributeNames {
			if name == "SentTimestamp" || name == "All" {
				one.Attributes = map[string]string{"SentTimestamp": strconv.FormatInt(m.sent.UnixMilli(), 10)}
			}
		}
		out = append(out, one)
		q.received++
		if q.fault.Twice && len(out) < in.MaxNumberOfMessages {
			out = append(out, one)
			q.received++
		}
	}
	return out
}

// delete removes messages by their last handles; what is gone already counts as removed.
func (q *Queue) delete(in queueRequest) (done, failed []queueOutcome) {
	q.c.mu.Lock()
	defer q.c.mu.Unlock()
	for _, e := range in.Entries {
		if q.fault.Keeps || strings.TrimSpace(e.ReceiptHandle) == "" {
			failed = append(failed, queueOutcome{e.ID, "InternalError", false})
			continue
		}
		for i, m := range q.messages {
			if m.handle == e.ReceiptHandle {
				q.messages = append(q.messages[:i:i], q.messages[i+1:]...)
				q.deleted++
				break
			}
		}
		done = append(done, queueOutcome{ID: e.ID})
	}
	return done, failed
}
