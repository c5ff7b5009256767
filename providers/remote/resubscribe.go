package remote

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Resubscribe keeps a Watch subscribed at one device: it calls watch again each time that watch returns. watch reports
// whether it was subscribed, and why that ended. The pause before the next call is first, and doubles up to last with
// each call that did not subscribe. Resubscribe blocks until ctx ends, and returns ctx's error then, or until watch
// returns an error that is final, which it returns.
func Resubscribe(
	ctx context.Context, log *slog.Logger, first, last time.Duration, final error,
	watch func(context.Context) (subscribed bool, err error),
) error {
	for pause := first; ; pause = min(2*pause, last) {
		subscribed, err := watch(ctx)
		switch cause := providers.ErrorCause(err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, final):
			log.Warn("Cannot watch a device", "err", cause)
			return err
		case subscribed:
			log.Warn("Lost the events of a device", "err", cause)
			pause = first
		default:
			log.Debug("Cannot subscribe to the events of a device", "err", cause, "again", pause)
		}
		if !SleepContext(ctx, pause) {
			return ctx.Err()
		}
	}
}
