package explore

// String names the transition.
func (v verb) String() string {
	return [...]string{"nothing", "powerCut", "boot", "partition", "late", "dumb", "first", "last", "timeOut", "crash",
		"second", "pause", "heal", "unpause", "lease",
		"status", "list", "oldList", "mount", "admits", "starts", "stops", "tells", "confirms", "hookReads",
		"hookLists", "hookAsks", "nodeLost",
		"setWorks", "bind", "detach", "attach", "otherRuns", "otherStops", "goesOff", "lands", "deliver", "wake",
		"timer", "begins"}[v]
}
