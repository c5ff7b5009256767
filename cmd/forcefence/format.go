package main

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// formatAge formats the time since at for people.
func formatAge(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(*at)))
}

// formatSeconds formats a number of seconds for people.
func formatSeconds(n float64) string {
	return time.Duration(n * float64(time.Second)).Round(time.Second).String()
}

// formatNames lists names; all is how many exist.
func formatNames(names []string, all int) string {
	if len(names) == 0 {
		return ""
	}
	text := ": " + strings.Join(names, ", ")
	if more := all - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// formatOffset formats a time since the fence's start.
func formatOffset(d time.Duration) string {
	sign := "+"
	if d = d.Round(100 * time.Millisecond); d < 0 {
		sign, d = "-", -d
	}
	if d < time.Minute {
		return fmt.Sprintf("%s%.1fs", sign, d.Seconds())
	}
	return sign + d.Round(time.Second).String()
}

func roundedDuration(d drill.Device) time.Duration { return d.Duration.Round(time.Millisecond) }

// errorText returns an error's class and cause, or "-" for nil.
func errorText(err error) string {
	if err == nil {
		return "-"
	}
	return providers.ErrorCause(err)
}
