package main

import "fmt"

// p99Page shows all rounds in Markdown.
func p99Page(all []fenceRound) string {
	fences, parts := percentiles(all)
	return fmt.Sprintf(`%s `+"`make bench RUN=p99 ROUNDS=1000`"+` cuts the power of
real QEMU guests, one after the other: behind libvirtd, or behind OpenIPMI's BMC simulator. Control plane and forcefence
are real, kubelets are simulated. Times are from the power cut until every pod of the machine is Ready elsewhere.

%s
The steps of the pod that was Ready last:

%s
The slowest one per cent, and the step that took longest against its median:

%s`, measuredOn(all), fences.markdown(), parts.markdown(), waits(all).markdown())
}
