package sim

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"testing"
)

// receivedFile has what controllers send in the first histories: one hash for each block of them.
const receivedFile = "testdata/received.txt"

// block is how many histories share a hash.
const block = 100

// fold is the hash of blocks of histories; what is left over has none.
func fold(received []uint64) (out []string) {
	for ; len(received) >= block; received = received[block:] {
		sum := fnv.New64a()
		for _, r := range received[:block] {
			fmt.Fprintf(sum, "%016x", r)
		}
		out = append(out, fmt.Sprintf("%016x", sum.Sum64()))
	}
	return out
}

// sameReceived holds that controllers send what they sent before, in every history from the seed first on. A change of
// form keeps the file; a commit that changes what is sent writes it anew, and says why.
func sameReceived(t *testing.T, first uint64, received []uint64) {
	t.Helper()
	if first%block != 0 {
		return
	}
	got := fold(received)
	if *update {
		if err := os.WriteFile(receivedFile, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(receivedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, wrong := bufio.NewScanner(f), 0
	for i := -int(first / block); lines.Scan() && i < len(got); i++ {
		if i >= 0 && lines.Text() != got[i] {
			if wrong++; wrong <= 3 {
				t.Errorf("seeds %d to %d: what controllers send changed", int(first)+i*block, int(first)+(i+1)*block-1)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d blocks of histories changed. -sim.seed=SEED shows one, on this version and on the one "+
			"before. "+
			"If it is meant: go test ./test/sim -run TestHistories -sim.seeds=20000 -sim.update", wrong, len(got))
	}
}
