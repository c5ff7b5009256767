package config

import (
	"fmt"
	"regexp"
	"time"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/journal"
)

// removedKeys maps keys of earlier versions to what applies now. A file or an environment with such a key is refused,
// because its author may rely on another value. In a path [] is any item of a list.
var removedKeys = map[string]string{
	"leaderElection.name":      "the leader's Lease is always " + LeaseNamespace + "/" + LeaseName,
	"leaderElection.namespace": "the leader's Lease is always " + LeaseNamespace + "/" + LeaseName,
	"listen.health":            "health is always served on port " + HealthPort,
	"pauseConfigMap": "the ConfigMap " + PauseConfigMap + " in the controller's namespace pauses " +
		"the whole cluster",
	"powerOnDelay": fmt.Sprintf("machines are powered on %s after their fence has ended",
		short(PowerOnDelay)),
	"providers[].ec2.queues": "EC2 is only asked",
	"providers[].ipmi.traps": "BMCs that speak IPMI are only asked",
	"providers[].watchdog": "elapsed time is no proof. Give its nodes another device, or a provider of type " +
		"confirm, by which a person says that a machine is off",
	"record":         movedRecording,
	"record.file":    movedRecording,
	"records":        keptRecords,
	"records.keep":   keptRecords,
	"records.maxAge": keptRecords,
	"stormGuard.coolDown": fmt.Sprintf("after a limit was hit, power-offs wait until all limits have been kept for %s",
		short(fleet.DefaultLimits().CoolDown)),
}

var movedRecording = fmt.Sprintf("write recording: {file: FILE}. FILE and FILE.1 together take at most %dMi",
	MaxRecordingBytes>>20)

var keptRecords = fmt.Sprintf("the newest %d finished Fencings are kept, each for at most %d days",
	journal.DefaultRetention.Count, journal.DefaultRetention.Age/(24*time.Hour))

// removedKey returns what applies instead of a key of an earlier version; "" for any other.
func removedKey(path string) string { return removedKeys[itemNumber.ReplaceAllString(path, "[]")] }

var itemNumber = regexp.MustCompile(`\[\d+\]`)

// removedEnv returns what applies instead of an environment variable of an earlier version; "" for any other.
func removedEnv(name string) string {
	for path, now := range removedKeys {
		if EnvName(path) == name {
			return now
		}
	}
	return ""
}
