package fenceagent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// maxInput fits into every pipe at once, however small the system made it.
	maxInput = 4096
	// maxOutput is how much is kept of each of an agent's outputs; the rest is read and dropped.
	maxOutput = 64 << 10
	// killAfter is how long a keeper may take to end its agent before the keeper itself is killed.
	killAfter = 1500 * time.Millisecond
)

// input is an agent's input: one key=value a line, the action first. A reader of a part of it gets the action, and no
// agent starts without one: an agent without an action reboots the machine.
type input struct {
	text    bytes.Buffer
	user    string   // who logs in, where an option says so
	secrets []string // values that no message may repeat
	acts    bool     // the action is neither status nor metadata
	files   []string // that its options name: keys, certificates, lists of hosts
}

func newInput(action string) *input {
	in := &input{acts: action != "status" && action != "metadata"}
	in.text.WriteString("action=" + action + "\n")
	return in
}

// addOption adds a key. The error, an ErrPermanent, does not repeat the value.
func (in *input) addOption(key, value string) error {
	if err := checkValue(value); err != nil {
		return providers.Errorf(providers.ErrPermanent, "option %s %w", key, err)
	}
	in.text.WriteString(key + "=" + value + "\n")
	return nil
}

// absolute finds paths within a value, such as that of ssh_options.
var absolute = regexp.MustCompile(`(?:^|[\s"'=,])(/[^\s"'=,:]+)`)

// filesIn returns the files that options name. It ignores IDs, because a kubelet may have chosen them.
func filesIn(options map[string]string) (files []string) {
	for _, value := range options {
		for _, match := range absolute.FindAllStringSubmatch(value, -1) {
			files = append(files, match[1])
		}
	}
	return files
}

// checkValue returns why an agent would not read a value unchanged, or nil. A value must end with its line, and agents
// cut off spaces and quotes.
func checkValue(value string) error {
	switch {
	case !utf8.ValidString(value):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return errors.New("has a line break or another control character: an agent would take what follows for " +
			"another option")
	case strings.TrimSpace(value) != value:
		return errors.New("begins or ends with a space, which agents cut off")
	case len(value) > 1 && strings.HasPrefix(value, `"`) && strings.HasSuffix(value, `"`):
		return errors.New("is in quotes, which agents cut off")
	}
	return nil
}

// result is the result of one run of an agent.
type result struct {
	code           int // its exit status; less than 0 if it was ended
	stdout, stderr string
	secrets        []string // of its input
}

// runAgent runs an agent once and leaves nothing of it behind. The error, of a class, means that it was not run, or
// that ctx ended first: then its output is void.
func runAgent(ctx context.Context, agent string, in *input) (result, error) {
	if in.text.Len() > maxInput {
		return result{}, providers.Errorf(providers.ErrPermanent, "its options have more than %d bytes", maxInput)
	}
	stdin, w, err := os.Pipe()
	if err != nil {
		return result{}, err
	}
	defer stdin.Close()
	// All input is in the pipe before the agent starts: if this process dies in between, the agent does not find an
	// empty input.
	_, err = w.Write(in.text.Bytes())
	if err := errors.Join(err, w.Close()); err != nil {
		return result{}, err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return result{}, err
	}
	defer ours.Close()
	defer theirs.Close()

	cmd := exec.CommandContext(ctx, keeperPath)
	cmd.Args, cmd.Env, cmd.SysProcAttr = append([]string{keeperName, agent}, in.files...), agentEnv(), keeperAttr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Cancel, cmd.WaitDelay = ours.Close, killAfter
	var stdout, stderr boundedOutput
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if in.acts {
		if err := remote.MaySend(ctx); err != nil {
			return result{}, err
		}
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	switch exit := (*exec.ExitError)(nil); {
	case !errors.As(err, &exit):
		// a keeper never exits with 0
		return result{}, providers.Errorf(providers.ErrPermanent, "the agent's keeper: %w", err)
	case exit.ExitCode() == codeNoStart:
		return result{},
			providers.Errorf(providers.ErrPermanent, "the agent does not start: %s", strings.TrimSpace(stderr.String()))
	}
	return result{cmd.ProcessState.ExitCode() - codeBase, stdout.String(), stderr.String(), in.secrets}, nil
}

// boundedOutput keeps the first maxOutput bytes written to it. It embeds no buffer: io.Copy would call the buffer's
// ReadFrom, which has no bound.
type boundedOutput struct{ kept bytes.Buffer }

func (o *boundedOutput) Write(p []byte) (int, error) {
	o.kept.Write(p[:min(len(p), maxOutput-o.kept.Len())])
	return len(p), nil
}

// String returns what was kept.
func (o *boundedOutput) String() string { return o.kept.String() }

// agentEnv is the only part of this process' environment that agents get: passwords may be in the rest.
func agentEnv() []string {
	env := []string{"LC_ALL=C.UTF-8"}
	for _, key := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}
