package view

// Meaning explains a state to a person.
type Meaning struct {
	State State
	Means string // which nodes are in the state, without a full stop
	Next  string // what happens next, without a full stop
	Actor string // who acts: "you", "forcefence" or "none"
}

// Meanings explains all states, in the order in which a person wants to see them. A node is in the first one that fits.
func Meanings() []Meaning {
	return []Meaning{
		{StateNeedsPerson, "not Ready for 5 minutes without a proof of Off, or its machine is on, its fence hangs, " +
			"or a device said a false Off", "nothing, until you do what NEXT says", "you"},
		{StateFencing, "marked, or its fence is not done", "its pods end, its volumes detach, the mark goes",
			"forcefence"},
		{StateNotReady, "not Ready: for less than 5 minutes, after its fence, or left alone by a person's choice",
			"its devices are asked; after a fence it waits until the machine is back", "forcefence"},
		{StateUnfenceable, "Ready, and its devices did not answer as a fence needs it", "its devices are asked again",
			"you"},
		{StateLeftAlone, "Ready, and paused, excluded, or in a mode that does not act", "nothing, if the node dies",
			"none"},
		{StateFine, "Ready, and a fence could prove it off when its devices were last asked",
			"its devices are asked every 5 minutes", "none"},
	}
}
