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
		{StateNeedsPerson, "not Ready, and its last drill failed or it has no device; or not Ready for 5 minutes " +
			"without a proof of Off; or its machine is on, its fence or its mark does not end, it did not come " +
			"back, or a device said a false Off", "nothing, until you do what NEXT says", "you"},
		{StateFencing, "marked, or its fence is not done", "its pods end, its volumes detach, the mark goes",
			"forcefence"},
		{StateNotReady, "not Ready: for less than 5 minutes, after its fence, or left alone by a person's choice",
			"its devices are asked; after a fence it waits for its machine, or for you, as NEXT says", "forcefence"},
		{StateUnfenceable, "Ready, and its devices did not answer as a fence needs it, or it has no device; status " +
			"shows it as not asked until a controller has asked its devices", "its devices are asked again", "you"},
		{StateLeftAlone, "Ready, and paused, excluded, in mode disabled or shadow, with a mode lowered by its " +
			"annotation, or without a controller that leads",
			"nothing, if the node dies; in mode observe it is recovered if its machine is off", "none"},
		{StateFine, "Ready, and a fence could prove it off when its devices were last asked",
			"its devices are asked every 5 minutes, with more than 400 nodes less often", "none"},
	}
}
