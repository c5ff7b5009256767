package nri

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/coreos/go-systemd/v22/journal"
	"gopkg.in/natefinch/lumberjack.v2"
)

// newLog writes to the file, rotated, to journald's socket where there is one, and to w, if not nil. A plugin that the runtime
// started has no output of its own.
func newLog(file string, w io.Writer) (log *slog.Logger, closeLog func()) {
	var handlers []slog.Handler
	closeLog = func() {}
	if file != "none" {
		l := &lumberjack.Logger{Filename: file, MaxSize: 5, MaxBackups: 1} // MB
		closeLog = func() { _ = l.Close() }
		handlers = append(handlers, slog.NewTextHandler(l, nil))
	}
	if journal.Enabled() {
		handlers = append(handlers, slog.NewTextHandler(journald{}, nil))
	}
	if w != nil {
		handlers = append(handlers, slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewMultiHandler(handlers...)), closeLog
}

// journald takes a line. Its socket is a datagram's: a full one refuses, and the line is in the file.
type journald struct{}

func (journald) Write(line []byte) (int, error) {
	return len(line), journal.Send(string(line), journal.PriInfo, map[string]string{"SYSLOG_IDENTIFIER": "forcefence-node"})
}

// stubLog hands on what NRI's stub says.
type stubLog struct{ log *slog.Logger }

func (l stubLog) say(ctx context.Context, level slog.Level, format string, args []any) {
	l.log.Log(ctx, level, "NRI", "says", fmt.Sprintf(format, args...))
}

func (l stubLog) Debugf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelDebug, format, args)
}
func (l stubLog) Infof(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelDebug, format, args)
}
func (l stubLog) Warnf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelWarn, format, args)
}
func (l stubLog) Errorf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelError, format, args)
}
