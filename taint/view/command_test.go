package view

import "testing"

func TestNameInController(t *testing.T) {
	const inPod = "kubectl -n home exec deploy/forcefence -- /ko-app/forcefence "
	for text, want := range map[string]string{
		"Once it is repaired: forcefence release n1 --yes":   "Once it is repaired: forcefence release n1 --yes",
		"kubectl forcefence drill n1":                        inPod + "drill n1",
		"forcefence confirm-off n1 --reason TEXT":            "forcefence confirm-off n1 --reason TEXT",
		"Use `forcefence power on` or forcefence explain n1": "Use `" + inPod + "power on` or " + inPod + "explain n1",
		inPod + "explain n1":                                 inPod + "explain n1",
		"forcefence powered its machine off":                 "forcefence powered its machine off",
		"forcefence check-config FILE prints every fault":    "forcefence check-config FILE prints every fault",
		"forcefence-node status":                             "forcefence-node status",
	} {
		if got := nameInController("home", text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got, want := inController("", "explain n1"),
		"kubectl -n forcefence-system exec deploy/forcefence -- /ko-app/forcefence explain n1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
