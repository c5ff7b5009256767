package redfish_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/test/datacenter"
)

// before calls a function before a request reaches the BMC, with how many there were to that path.
type before struct {
	inMemory
	f func(r *http.Request, n int)

	mu   sync.Mutex // guards seen
	seen map[string]int
}

func (b *before) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	if b.seen == nil {
		b.seen = map[string]int{}
	}
	n := b.seen[r.URL.Path]
	b.seen[r.URL.Path]++
	b.mu.Unlock()
	b.f(r, n)
	return b.inMemory.RoundTrip(r)
}

// Who joins a look at all systems reads the system again. If it is another machine's by then, nothing is known.
func TestSystemMovesDuringLookUp(t *testing.T) {
	for name, machines := range map[string]int{"the BMC's only one": 1, "one of two": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, machines, nil, func(t *testing.T, r *rack, _ *limiter.Provider) {
				var joined sync.WaitGroup
				path := system(r.ms[0])
				redfish.SetTransport(r.p, &before{inMemory: inMemory{r.bmc}, f: func(q *http.Request, n int) {
					switch {
					case q.URL.Path != path:
					case n == 0: // of the look that the first caller began
						time.Sleep(time.Second)
						joined.Go(func() {
							obs, err := r.p.State(t.Context(), r.target())
							if obs.State != providers.PowerUnknown || !errors.Is(err, providers.ErrNotFound) {
								t.Errorf("joined: got %s of %s, %v; want %v", obs.State, obs.SystemUUID, err,
									providers.ErrNotFound)
							}
						})
						time.Sleep(time.Second)
					case n == 1:
						r.ms[0].SetFault(datacenter.Fault{SystemUUID: anotherUUID})
					}
				}})
				if obs, err := r.p.State(t.Context(), r.target()); obs.State != providers.PowerOn || err != nil {
					t.Errorf("began: got %s, %v", obs.State, err)
				}
				joined.Wait()
			})
		})
	}
}

// A chassis' answer that was asked for before the system's is as old as that question.
func TestChassisIsOlderThanTheQuestion(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, r *rack, _ *limiter.Provider) {
		var asked time.Time
		read := make(chan struct{})
		path := system(r.ms[0])
		redfish.SetTransport(r.p, &before{inMemory: inMemory{r.bmc}, f: func(q *http.Request, n int) {
			switch {
			case q.URL.Path == path && n == 2: // refused, and asked again with another session
				<-read
				time.Sleep(time.Second)
				r.bmc.ExpireSessions()
			case q.URL.Path == "/redfish/v1/Chassis/m0" && n == 2:
				asked = time.Now()
				close(read)
			}
		}})
		r.bmc.SetFault(datacenter.Fault{Chassis: "true"})
		r.ms[0].CutPower()
		for range 2 { // from then on the chassis is read beside the system
			r.want(t, r.target(), providers.PowerOff)
		}
		obs, err := r.p.State(t.Context(), r.target())
		if obs.State != providers.PowerOff || err != nil || obs.At.After(providers.InstantOf(asked)) {
			t.Errorf("got %s, %v; the chassis was asked %s before the answer's time", obs.State, err,
				obs.At.Sub(providers.InstantOf(asked)))
		}
	})
}
