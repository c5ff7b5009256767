package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// RequireChromium is the variable that, set to 1, has a test fail where there is no Chromium.
const RequireChromium = "FORCEFENCE_REQUIRE_CHROMIUM"

// Browse has test/browser look at pages in a real Chromium: those of url, given as name=path, after a log in with the
// token. It returns the folder with the screenshots, each by its page's name: NAME-light.png, NAME-dark.png,
// NAME-phone.png. Without Debian's package chromium it skips the test.
func Browse(t testing.TB, url, token string, pages ...string) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "token")
	Must(t, os.WriteFile(secret, []byte(token), 0o600))
	return runBrowser(t, append([]string{"-url", url, "-token", secret}, pages...)...)
}

// BrowseStates has test/browser take pictures of whole pages that need no log in, given as name=address, and check
// their layout. It returns the folder with the pictures: NAME-desktop.png, NAME-dark.png, NAME-phone.png, and with
// font-width, the width of a text in the page's font. Without Debian's package chromium it skips the test.
func BrowseStates(t testing.TB, pages ...string) string {
	t.Helper()
	return runBrowser(t, append([]string{"-states"}, pages...)...)
}

// runBrowser builds and runs test/browser with the arguments. It returns the folder with what that wrote.
func runBrowser(t testing.TB, args ...string) string {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		Need(t, err.Error(), RequireChromium)
	}
	module, err := filepath.Abs(filepath.Join(Root(t), "test/browser"))
	Must(t, err)
	dir := t.TempDir()
	program, out := filepath.Join(dir, "browser"), filepath.Join(dir, "out")
	GoBuild(t, module, ".", program)
	Must(t, os.Mkdir(out, 0o755))
	cmd := exec.CommandContext(t.Context(), program, append([]string{"-out", out, "-chromium", chromium}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir) // what a browser keeps goes with the test
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the browser: %v\n%s", err, said)
	}
	return out
}

// Root is the repository's folder.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	Must(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "kit", "browser.go")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("not within the repository")
		}
		dir = up
	}
}
