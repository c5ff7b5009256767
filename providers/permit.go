package providers

import (
	"errors"
	"fmt"
	"sync"
)

// PermitSends wraps the still of one power action. A type calls the result right before every request that acts, on
// every attempt. After an error neither this nor any later request may be sent.
//
// The error is ErrNotSent while no earlier request was permitted. Later it is ErrUnreachable, because an earlier
// request may have reached the device. A panic of still is an error. Calls are serialised and block as long as still
// does.
func PermitSends(still func() error) func() error {
	var mu sync.Mutex // guards what follows
	permitted := false
	var refused error
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if refused == nil {
			refused = askStill(still, permitted)
			permitted = true
		}
		return refused
	}
}

func askStill(still func() error, sent bool) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: checking whether it may still be sent panicked: %v", ErrPermanent, r)
		}
		err = classifyRefusal(err, sent)
	}()
	return still()
}

// classifyRefusal adds a class to an error of still.
func classifyRefusal(err error, sent bool) error {
	switch {
	case err == nil:
		return nil
	case !sent:
		return WithClass(ErrNotSent, err)
	case errors.Is(err, ErrNotSent): // true of this request only
		err = errors.New(err.Error())
	}
	return WithClass(ErrUnreachable,
		fmt.Errorf("not sent again, an earlier request may have reached the device: %w", err))
}
