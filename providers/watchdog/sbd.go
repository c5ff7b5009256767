package watchdog

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// header is what one disk says about time.
type header struct {
	watchdog time.Duration // a machine that cannot read its disks, or whose sbd hangs, is reset after that time
	msgwait  time.Duration // a message counts as delivered that time after it was written
}

var (
	headerVersion = regexp.MustCompile(`^2(\.[0-9]{1,3})?$`)
	headerSeconds = regexp.MustCompile(`^[0-9]{1,5}$`)
)

// parseHeader reads the output of `sbd dump` of one disk. Every value that matters must be there exactly once.
func parseHeader(text string) (h header, _ error) {
	const version = "Header version"
	seen := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch key = strings.TrimSpace(key); key {
		case version, "Timeout (watchdog)", "Timeout (msgwait)":
			if seen[key] != "" {
				return header{}, fmt.Errorf("sbd dump has %q twice", key)
			}
			seen[key] = strings.TrimSpace(value)
		}
	}
	if !headerVersion.MatchString(seen[version]) {
		return header{}, fmt.Errorf("sbd dump says header version %q, which is unknown", seen[version])
	}
	for key, to := range map[string]*time.Duration{
		"Timeout (watchdog)": &h.watchdog, "Timeout (msgwait)": &h.msgwait,
	} {
		if !headerSeconds.MatchString(seen[key]) {
			return header{}, fmt.Errorf("sbd dump says %q for %s, which is no number of seconds", seen[key], key)
		}
		seconds, _ := strconv.Atoi(seen[key])
		*to = time.Duration(seconds) * time.Second
	}
	return h, nil
}

// The words of sbd for a slot. An empty word means that the disk has no slot of that name.
const (
	wordClear = "clear"
	wordTest  = "test"
	wordReset = "reset"
	wordOff   = "off"
	wordExit  = "exit"
	wordCrash = "crashdump"
	wordNone  = ""
	wordTwice = "more than one slot"
)

// slotLine is a line of `sbd list`: number, name, word, and the sender of the message. A slot's name and a sender are
// text that any machine with the disk can write, line breaks included.
var slotLine = regexp.MustCompile(`^[0-9]{1,3}\t([A-Za-z0-9._-]{1,63})\t([a-z]+)\t`)

// parseSlots reads the output of `sbd list` of one disk: the word of each slot, by its name in lower case, as sbd
// compares them. Lines of another form are skipped. A name that is there twice has wordTwice: one of the two is false.
func parseSlots(text string) map[string]string {
	words := map[string]string{}
	for line := range strings.Lines(text) {
		slot := slotLine.FindStringSubmatch(line)
		if slot == nil {
			continue
		}
		name := strings.ToLower(slot[1])
		if _, twice := words[name]; twice {
			slot[2] = wordTwice
		}
		words[name] = slot[2]
	}
	return words
}

// isFencing reports whether a word makes a running sbd reset or switch off its machine.
func isFencing(word string) bool { return word == wordReset || word == wordOff }

// isRead reports whether a running sbd may be reading a slot with that word.
func isRead(word string) bool {
	return word == wordClear || word == wordTest || word == wordCrash || isFencing(word)
}
