package conformance

// The faults of a network, which a Proxy simulates. NoFault ends them.
const (
	HangConnect   Fault = "hang in connect"   // the connection's first packet is not answered
	HangHandshake Fault = "hang in handshake" // connections are accepted, and nothing is ever said on them
	HangAnswer    Fault = "hang in an answer" // an answer begins and never ends
	HalfAnswer    Fault = "half an answer"    // the connection ends in the middle of an answer
	// the device acts on the request, and its answer comes when the fault is over
	LateAnswer         Fault = "late answer"
	ExpiredCertificate Fault = "expired certificate" // the device shows one that was good until yesterday
	UnknownAuthority   Fault = "unknown authority"   // the device shows one of an unknown authority
	NotThere           Fault = "404"                 // HTTP: every request is answered so
	TooMany            Fault = "429"                 // HTTP: likewise, with a Retry-After of an hour
	Gibberish          Fault = "gibberish"           // HTTP: status 200, and words that no one has heard of
)

// Flood is the device's own part of a flood: within its protocol it answers with as much as it can, as many members of
// each list as possible, and text of any length. A Bench without one ignores it.
const Flood Fault = "flood"
