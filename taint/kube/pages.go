package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pages reads lists in pages.
type pages struct {
	client.Reader
	options []client.ListOption
	rest    func(time.Duration) // called after each page with how long it took; nil: no rest
	size    int64               // objects of the first page; 0: all, unless that is too much
	keeps   bool                // what visit is called with is kept, so all pages together are limited
	room    bool                // an estimate of room reads it
}

// Sizes of pages of a list that is too large to be read at once, and the time that a page should take.
const (
	firstPage  = 32
	largePage  = 500
	quickPage  = time.Second
	slowPage   = 4 * time.Second
	pagesLimit = 3 * time.Minute // of all pages without rests
)

// list is a pointer to a list L of objects.
type list[L any] interface {
	*L
	client.ObjectList
}

// eachPage calls visit with each page of a list of what it names. A page has at most answerCost of what is kept, and
// begins small: the next one is larger after a quick page, and smaller after a slow one.
func eachPage[L any, P list[L]](ctx context.Context, p pages, what string, visit func(P)) error {
	size, next, bound := p.size, "", &boundedList{keeps: p.keeps, room: p.room}
	defer bound.release()
	if p.rest == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pagesLimit)
		defer cancel()
	}
	for {
		list, began := P(new(L)), time.Now()
		options := slices.Clip(p.options)
		if size > 0 {
			options = append(options, client.Limit(size), client.Continue(next))
		}
		page, cancel := context.WithTimeout(context.WithValue(ctx, listKey{}, bound), Timeout)
		err := p.List(page, list, options...)
		cancel()
		later := laterContinue(err)
		took := time.Since(began)
		switch {
		case later != "" && !p.keeps:
			next = later
			continue
		case errors.Is(err, errLarge) && size != 1:
			bound.forgetPage()
			if size == 0 {
				size = 4 * firstPage
			}
			size = max(size/4, 1)
			continue
		case err != nil:
			return fmt.Errorf("listing %s: %w", what, err)
		}
		visit(list)
		bound.endPage()
		if next = list.GetContinue(); next == "" || size == 0 { // a cache's list always has a token, of no use
			return nil
		}
		switch {
		case took < quickPage:
			size = min(2*size, cmp.Or(p.size, largePage))
		case took > slowPage:
			size = max(size/2, 1)
		}
		if p.rest != nil {
			p.rest(took)
		}
	}
}

// laterContinue returns the token that continues a list at a later state, if the API server compacted the state that
// the list began with: after 5 minutes by default. An estimate needs no single state.
func laterContinue(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// listKey is the context's key of the boundedList that a request is part of.
type listKey struct{}

// boundedList counts what is kept of a list.
type boundedList struct {
	keeps, room bool

	held       bool  // it has a turn of the large answers
	cost, page int64 // of all pages; of this page
	by         map[string]int64
}

// errFull is the error of a list that is too large for this process.
var errFull = errors.New("the list is too large for this process")

// add counts an object. It returns an error once the list has more than may be kept.
func (l *boundedList) add(namespace string, cost int64) error {
	if !l.keeps {
		return nil
	}
	if l.by == nil {
		l.by = map[string]int64{}
	}
	l.cost, l.page = l.cost+cost, l.page+cost
	if l.by[namespace] += cost; l.cost <= listCost {
		return nil
	}
	most := slices.MaxFunc(slices.Collect(maps.Keys(l.by)), func(a, b string) int {
		return cmp.Compare(l.by[a], l.by[b])
	})
	return fmt.Errorf("%w: more than %d MiB, of which namespace %s has %d", errFull, listCost>>20, most,
		l.by[most]>>20)
}

// partCost is how much is kept of one part of an object of the namespace: little once the namespace has used up its
// share, so that its objects do not fill the list.
func (l *boundedList) partCost(namespace string) int64 {
	if l != nil && l.by[namespace] > shareCost {
		return smallPart
	}
	return partCost
}

// forgetPage takes back what the page that failed counted.
func (l *boundedList) forgetPage() {
	l.cost, l.page = l.cost-l.page, 0
	if l.cost == 0 {
		l.by = nil
	}
	l.release()
}

// endPage ends a page that was visited.
func (l *boundedList) endPage() {
	l.page = 0
	l.release()
}

func (l *boundedList) release() {
	if l.held {
		large.Release(1)
		l.held = false
	}
}
