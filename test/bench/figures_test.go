package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []float64
		want float64
	}{
		{"one", []float64{3}, 3},
		{"odd, out of order", []float64{9, 1, 5}, 5},
		{"even", []float64{4, 1, 2, 3}, 2.5},
		{"an outlier does not move it", []float64{1, 1, 1, 1, 1, 1, 100}, 1},
	} {
		in := slices.Clone(tt.in)
		if got := median(in); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
		if !slices.Equal(in, tt.in) {
			t.Errorf("%s: the samples were put into another order: %v", tt.name, in)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("none: got %v, want NaN", got)
	}
}

func TestTurnsAlternate(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   []string
		want []string
	}{
		{"two", []string{"a", "b"}, []string{"a", "b", "b", "a", "a", "b"}},
		{"three", []string{"a", "b", "c"}, []string{"a", "b", "c", "b", "c", "a", "c", "a", "b"}},
	} {
		if got := turns(3, tt.of...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestRatiosAreOfPairs(t *testing.T) {
	if got, want := ratios([]float64{2, 9, 5}, []float64{1, 3, 0}), []float64{2, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTable(t *testing.T) {
	got := table([]Figure{
		{Bench: "evict", Name: "x", Value: 1.5, Unit: "s", Samples: []float64{1, 1.5, 2}},
		Figure{Bench: "fleet", Name: "VmRSS", Value: 123.456, Unit: "MB"}.atMost(80),
		Figure{Bench: "fleet", Name: "CPU", Value: 2, Unit: "%"}.atMost(2),
	})
	want := `bench  figure  median  min..max  n  unit  floor  limit  holds
evict  x       1.500   1..2      3  s     -      -      -
fleet  VmRSS   123.5   -         1  MB    -      80     NO
fleet  CPU     2       -         1  %     -      2      yes
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestParse(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "forcefence")
	if err := os.WriteFile(bin, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want string // in the error; "": none
	}{
		{"all", nil, ""},
		{"one", []string{"-run", "evict"}, ""},
		{"peers", []string{"-run", "peers"}, ""},
		{"unknown", []string{"-run", "nothing"}, `"nothing" is none of offseen`},
		{"no pairs", []string{"-pairs", "0"}, "less than 1"},
		{"one round for two ways", []string{"-rounds", "1"}, "less than 2"},
		{"no pod with a volume", []string{"-pods", "4"}, "less than 5"},
		{"left over", []string{"evict"}, "unexpected argument"},
	} {
		_, err := parse(append([]string{"-forcefence", bin}, tt.args...))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if (bench{name: "peers", asked: true}).chosen("") {
		t.Error("a bench that is run by name only was chosen among all")
	}
}
