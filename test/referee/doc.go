// The program referee judges a shipped binary from outside. It starts the binary twice beside a real control plane,
// perturbs what the two see and say, and reads from accounts that are not theirs whether the promises were kept. It can
// judge a peer's binary too (-command). With -of it judges other systems (systems.go), of several programs or none, by
// judge.Harm: what their users lose, which asks for no promise of forcefence.
//
// The world is that of the other tests: test/cluster's control plane, kubelets and ledger, and test/datacenter's
// machines behind one BMC. One thing in it is shared with what is judged: the simulated kubelets decide by
// kubelet-admit/admit, and read the mark as the hook does, whether a pod may start. A mistake in that decision is found
// all the same, as the ledger notes what runs twice. The judge (package judge) shares nothing: it imports nothing of
// this repository, so it finds a rule that the code and its tests misunderstand in the same way.
//
// One run is one fence. A node of its own, with 25 pods of StatefulSets (five of them with a volume) and one pod of
// each exempt kind, loses its power; three others hear of it. The run ends when the mark is gone, the machine is on
// again, and every pod runs once:
//
//	judged a --> proxy --+                           +--> audit log: every write, its author and result
//	judged b --> proxy --+--> kube-apiserver (etcd) -+
//	   |  |                    ^    controller-manager, scheduler, admission policies of deploy
//	   |  +--> device ----+    |
//	   |       (Redfish)  |    +-- simulated kubelets and attacher --> ledger: runs, mounts and attachments
//	   |                  +------------------------------------------> device's log: questions and answers
//	   +-- signals: KILL, STOP, CONT
//
// What may go wrong is a table (rows.go), with Sieve's three perturbations (OSDI 2022) in it: an intermediate state
// (killed right before and right after the k-th write, for every k), what is not observed (events dropped, coalesced,
// watches cut), and what is stale (events late, an API server that lags); and lost answers, refused requests, writes
// that arrive late, a stopped leader, a device that flaps, a machine that comes back. A row's runs follow from the seed
// alone, as far as a real cluster lets them.
//
// Some rows have neighbours (neighbours.go): CSI-Addons, whose manager the referee plays, and Karpenter, which does
// nothing. forcefence has another configuration there, and a fence ends in another way.
//
// What must hold is judge.Findings, a pure function of the accounts; docs/promises.md lists its checks.
//
// The writes' effects are read from a watch that is never perturbed, by resourceVersion, not from what the requests
// said; if that watch had to list again, the run is an error. All times are of one machine's clock. Age counts from
// when the device got the question until the proxy got the write: both are later than what the binary knows, by what
// lies between; judge's slackFor says how much of that is forgiven.
//
// Mutants (mutants.go) are builds of our own source with one check taken out. The referee must find each, or it is the
// one that fails.
package main
