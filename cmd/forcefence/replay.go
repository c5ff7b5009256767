package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/features/recording"
	"github.com/forcefence/forcefence/taint/features/recording/replay"
)

// newReplay returns the command that repeats the decisions of a recording.
func newReplay() *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Repeat the decisions of a recording",
		Long: `Repeat the decisions of a recording that the controller wrote (recording.file),
and print the recorded and the new decisions side by side. Name the oldest file
first: FILE.1 FILE. The command asks neither an API server nor a device.

Exits with 1 if a line cannot be read, if another error occurs, or if a decision
differs: either this version decides differently, or the recording was changed.`,
		Example: `  # Do today's rules decide as the controller did?
  forcefence replay recording.1 recording`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			var r replay.Report
			played := make(chan error, 1)
			go func() {
				var err error
				r, err = playFiles(args)
				played <- err
			}()
			select {
			// A read from a pipe without a writer never returns, and a recording of a month takes long
			case <-cmd.Context().Done():
				return errors.New("interrupted")
			case err := <-played:
				if err != nil {
					return err
				}
			}
			out := cmd.OutOrStdout()
			if err := format.print(out, report{r, replayTable(r), func(out io.Writer, wide bool) error {
				return printReplay(out, r, wide)
			}}); err != nil {
				return err
			}
			switch {
			case r.Broken > 0:
				return fmt.Errorf(
					"could not read or replay %s, so the rest of their incidents is left out; the first: %s",
					decide.FormatCount(r.Broken, "line"), r.First,
				)
			case r.Differ > 0:
				return errors.New("decisions differ from those that were recorded")
			}
			return nil
		},
	}
	format.addFlag(cmd)
	return cmd
}

// playFiles replays files.
func playFiles(names []string) (replay.Report, error) {
	var in []io.Reader
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return replay.Report{}, fmt.Errorf("opening recording: %w", err)
		}
		defer f.Close()
		in = append(in, f)
	}
	return replay.PlayRecordings(in)
}

// replayTable has a row for each decision.
func replayTable(r replay.Report) *metav1.Table {
	t := newTable("Time", "Node", "Then", "Now", "+Line")
	for _, d := range r.Decisions {
		now := "the same"
		if d.Differs {
			now = d.Now.String()
		}
		if now == d.Then.String() {
			now += ", with other " + recording.CleanText(strings.Join(d.In, ", "))
		}
		addRow(t, nodeNamed(recording.CleanText(d.Node)), d.At.UTC().Format(time.DateTime), recording.CleanText(d.Node),
			d.Then, now, d.Line)
	}
	return t
}

// printReplay prints decisions as a table. Package replay has already made the recording's texts safe for a terminal.
func printReplay(out io.Writer, r replay.Report, wide bool) error {
	for i, h := range r.Headers {
		if i == 0 || h.ConfigDigest != r.Headers[i-1].ConfigDigest || h.By != r.Headers[i-1].By {
			printText(out, "", "Recorded by forcefence %s from %s on, mode %s.", recording.CleanText(h.By),
				h.At.UTC().Format(time.DateTime), recording.CleanText(h.Mode))
		}
	}
	if err := printTable(out, replayTable(r), wide); err != nil {
		return err
	}
	if len(r.Decisions) > 0 {
		fmt.Fprintln(out)
	}
	what := "All are the same."
	switch {
	case r.Differ > 0:
		what = fmt.Sprintf("%d differ.", r.Differ)
	case r.Compared == 0:
		what = "Nothing could be compared."
	}
	printText(out, "", "Compared %s of %s. %s", decide.FormatCount(r.Compared, "decision"),
		decide.FormatCount(r.Lines, "line"), what)
	for _, left := range []struct {
		n          int
		thing, why string
	}{
		{r.Skipped, "line", "these files lack the beginning of the incident, or a line before it"},
		{r.Truncated, "incident", "more than the recorded size of one incident (8 MiB)"},
		{r.Dropped, "line", "not recorded, because the disk was slow or full"},
	} {
		if left.n > 0 {
			printText(out, "", "Left out: %s, %s.", decide.FormatCount(left.n, left.thing), left.why)
		}
	}
	if r.Torn {
		printText(out, "", "The last line is incomplete and left out.")
	}
	return nil
}
