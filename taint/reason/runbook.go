package reason

import "strings"

// Section is the title of a section of docs/runbook.md: the name of an alert, or SectionNothing.
type Section string

// The sections about nodes. All but the last are alerts; DrillFailing and LeftAlone are warnings.
const (
	SectionMarkStuck    Section = "ForcefenceMarkStuck"
	SectionProofLost    Section = "ForcefenceProofLost"
	SectionUnproven     Section = "ForcefenceNodeUnproven"
	SectionStorm        Section = "ForcefenceStorm"
	SectionLeftOn       Section = "ForcefenceNodeLeftOn"
	SectionDistrusted   Section = "ForcefenceDeviceDistrusted"
	SectionDrillFailing Section = "ForcefenceDrillFailing"
	SectionLeftAlone    Section = "ForcefenceNodeLeftAlone"
	SectionNothing      Section = "When nothing happens"
)

// The sections about the whole installation.
const (
	SectionHookMissing   Section = "ForcefenceHookMissing"
	SectionConfigRefused Section = "ForcefenceConfigRefused"
	SectionNoLeader      Section = "ForcefenceNoLeader"

	SectionPauseForgotten Section = "ForcefencePauseForgotten"
	SectionNoRoom         Section = "ForcefenceNoRoom"
	SectionDeletedNode    Section = "ForcefenceDeletedNodeAttached"
)

// Anchor returns the part of the section's address after the #.
func (s Section) Anchor() string { return strings.ReplaceAll(strings.ToLower(string(s)), " ", "-") }

// sectionsOfStates has the critical alert of each state that calls a person.
var sectionsOfStates = map[State]Section{
	StateStuck: SectionMarkStuck, StateBroken: SectionMarkStuck,
	StateProofLost: SectionProofLost,
	StateUnproven:  SectionUnproven, StateNoMachine: SectionUnproven, StateDisagree: SectionUnproven,
	StateStillOn:    SectionUnproven,
	StateHeldBack:   SectionStorm,
	StateLeftOn:     SectionLeftOn,
	StateDistrusted: SectionDistrusted,
}

// waitsForPerson are the reasons without an alert after which a node stays dead until a person does something.
var waitsForPerson = map[Reason]Section{
	NeedsPerson: SectionMarkStuck, Failing: SectionMarkStuck, // the state is set apart from the reason
	UnknownMode: SectionNothing, MarkNotTaken: SectionNothing, Refused: SectionNothing, KeptOn: SectionNothing,
	PowerOnLimit: SectionNothing, PowerOnRefused: SectionNothing, NotBack: SectionNothing, FencedAgain: SectionNothing,
}

// PersonSection returns the section that says what a person does about a node with this reason; "" if the node needs
// no person.
func PersonSection(r Reason) Section {
	if s, ok := waitsForPerson[r]; ok {
		return s
	}
	return sectionsOfStates[RowOf(r).State]
}
