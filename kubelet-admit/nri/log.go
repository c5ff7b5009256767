package nri

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

// newLog writes to out, if it is not nil: a container's output, which the kubelet keeps. A plugin that the runtime
// started has no output of its own. It writes to the file, rotated, and to journald's socket if there is one. Two
// processes must not share the file: each would rotate it under the other.
func newLog(file string, out io.Writer) (log *slog.Logger, closeLog func()) {
	if out != nil {
		return slog.New(slog.NewTextHandler(out, nil)), func() {}
	}
	var handlers []slog.Handler
	closeLog = func() {}
	if file != "none" {
		l := &lumberjack.Logger{Filename: file, MaxSize: 5, MaxBackups: 1} // MB
		closeLog = func() { _ = l.Close() }
		handlers = append(handlers, slog.NewTextHandler(l, nil))
	}
	if _, err := os.Stat(journalSocket); err == nil {
		handlers = append(handlers, slog.NewTextHandler(journald{journalSocket}, nil))
	}
	return slog.New(slog.NewMultiHandler(handlers...)), closeLog
}

const (
	journalSocket = "/run/systemd/journal/socket"
	journalWait   = 50 * time.Millisecond
)

// journald writes a line by journald's own protocol. A journald that hangs fills its socket, and a write to that blocks
// for ever, as go-systemd's does (11 lines where max_dgram_qlen is 10). The line is in the file as well, so it is
// dropped: the reader of the API server writes here.
type journald struct{ socket string }

func (j journald) Write(line []byte) (int, error) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: j.socket, Net: "unixgram"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err = conn.SetWriteDeadline(time.Now().Add(journalWait)); err == nil {
		_, err = fmt.Fprintf(conn, "PRIORITY=6\nSYSLOG_IDENTIFIER=forcefence-node\nMESSAGE=%s\n", bytes.TrimSpace(line))
	}
	return len(line), err
}

// stubLog logs the warnings and errors of NRI's stub.
type stubLog struct{ log *slog.Logger }

func (stubLog) Debugf(context.Context, string, ...any) {}
func (stubLog) Infof(context.Context, string, ...any)  {}
func (l stubLog) Warnf(_ context.Context, format string, args ...any) {
	l.log.Warn("NRI message", "text", fmt.Sprintf(format, args...))
}
func (l stubLog) Errorf(_ context.Context, format string, args ...any) {
	l.log.Error("NRI message", "text", fmt.Sprintf(format, args...))
}
