package watchdog

import (
	"fmt"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// disk is what one disk says.
type disk struct {
	header header
	words  map[string]string // of the slots, by name
	err    error             // why it says nothing
}

// verdict is what the disks say of one slot now.
type verdict struct {
	state providers.PowerState // On, Changing (a message is pending) or Unknown
	word  string               // for a person: of each disk
	// pending are the disks that have the message, as a bit for each; wait is how long they must have it.
	pending uint8
	wait    time.Duration
}

// judgeSlot returns what the disks say of a slot. More than half of them must have the same kind of word: sbd resets a
// machine that reads fewer. margin is added to msgwait.
func judgeSlot(disks []disk, name string, margin time.Duration) (v verdict) {
	var words []string
	clear, most := 0, header{}
	for i, d := range disks {
		word := d.words[strings.ToLower(name)]
		switch {
		case d.err != nil:
			word = "not readable"
		case isFencing(word):
			v.pending |= 1 << i
		case word == wordClear:
			clear++
		case word == wordNone:
			word = "no slot"
		}
		words = append(words, word)
		most.msgwait, most.watchdog = max(most.msgwait, d.header.msgwait), max(most.watchdog, d.header.watchdog)
	}
	v.word, v.wait = joinWords(words), most.msgwait+margin
	switch half := len(disks) / 2; {
	case most.watchdog < time.Second:
		v.word += ", and the disks name no watchdog timeout: create them with -1 and -4"
	case most.msgwait < 2*most.watchdog:
		v.word += fmt.Sprintf(", but msgwait (%s) is less than twice the watchdog timeout (%s), so time means "+
			"nothing: create the disks with a longer -4", most.msgwait, most.watchdog)
	case v.pendingCount() > half:
		v.state = providers.PowerChanging
	case clear > half:
		v.state = providers.PowerOn
	}
	return v
}

func (v verdict) pendingCount() (n int) {
	for bits := v.pending; bits != 0; bits &= bits - 1 {
		n++
	}
	return n
}

// joinWords returns one word where all disks say the same.
func joinWords(words []string) string {
	for _, w := range words {
		if w != words[0] {
			return strings.Join(words, ", ")
		}
	}
	return words[0]
}
