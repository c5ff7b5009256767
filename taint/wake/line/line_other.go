//go:build !linux

package line

import "context"

// Run logs that there are no lines on this system, and blocks until ctx ends.
func (l *Lines) Run(ctx context.Context) error {
	l.Log.Info("No lines to nodes: they need Linux")
	<-ctx.Done()
	return nil
}
