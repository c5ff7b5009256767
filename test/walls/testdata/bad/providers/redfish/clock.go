package redfish

import "time"

// isOld counts what one clock shows. A process that was suspended does not see how old evidence is.
func isOld(at, now time.Time, age time.Duration) bool {
	return time.Since(at) > age ||
		now.Sub(at) > age
}
