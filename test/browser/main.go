// Command browser looks at the status page as a person does: in a real Chromium, by its keyboard. It logs in by the
// form, opens pages, and checks what only a browser knows: that the page's own policy lets all of it work and nothing
// else run, that its colours can be told apart in light and dark, that keys reach every link and show where they are,
// that nothing has no name for a screen reader, that a phone's width is enough, that no name is broken into lines, and
// that the page follows changes. It writes a screenshot of each page in light and dark. What is wrong it prints, and
// ends with 1.
//
// With -states it takes a picture of each whole page as three screens show it, and checks the layout: see states.go.
//
// It has a module of its own: no test of the repository's takes in a browser's protocol.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func main() { os.Exit(run()) }

func run() int {
	url := flag.String("url", "", "the page's address")
	token := flag.String("token", "", "a file with a token")
	out := flag.String("out", "", "the folder for screenshots")
	program := flag.String("chromium", "chromium", "the browser")
	states := flag.Bool("states", false, "take whole pictures of pages that need no log in, given as name=address")
	flag.Parse()
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(*program),
		chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("disable-lcd-text", true))
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	ctx, stop := chromedp.NewExecAllocator(ctx, opts...)
	defer stop()
	ctx, end := chromedp.NewContext(ctx)
	defer end()
	b := &browser{ctx: ctx, url: strings.TrimSuffix(*url, "/"), out: *out}
	visit := func() error { return b.visit(*token, flag.Args()) }
	if *states {
		visit = func() error { return b.visitStates(flag.Args()) }
	}
	if err := visit(); err != nil {
		fmt.Println(err)
		return 1
	}
	if len(b.problems) > 0 {
		fmt.Println(strings.Join(b.problems, "\n"))
		return 1
	}
	return 0
}

type browser struct {
	ctx      context.Context
	url, out string

	mu       sync.Mutex // guards what follows
	problems []string
}

func (b *browser) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// visit opens each page, given as name=path or name@width=path.
func (b *browser) visit(token string, pages []string) error {
	text, err := os.ReadFile(token)
	if err != nil {
		return err
	}
	// A page whose policy forbids what it does says so in the log; before the login 401 is what a page is.
	chromedp.ListenTarget(b.ctx, func(e any) {
		switch e := e.(type) {
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError && !strings.Contains(e.Entry.Text, "401") {
				b.problem("the browser's log: %s %s", e.Entry.Text, e.Entry.URL)
			}
		case *runtime.EventExceptionThrown:
			b.problem("the script failed: %s", e.ExceptionDetails.Error())
		}
	})
	var shown string
	err = chromedp.Run(b.ctx, cdplog.Enable(), runtime.Enable(), network.Enable(),
		chromedp.Navigate(b.url+"/hook"),
		chromedp.WaitVisible("#token"),
		shoot(b, "login", "light"),
		chromedp.SendKeys("#token", strings.TrimSpace(string(text))+kb.Enter), // no mouse
		chromedp.WaitVisible("#live-on"),
		chromedp.Location(&shown),
	)
	if err != nil {
		return fmt.Errorf("logging in: %w", err)
	}
	if shown != b.url+"/hook" {
		b.problem("after the log in: at %s, want where one wanted to go", shown)
	}
	var cookie string
	if err := chromedp.Run(b.ctx, chromedp.Evaluate("document.cookie", &cookie)); err != nil || cookie != "" {
		b.problem("a script reads the cookie %q (%v)", cookie, err)
	}
	for _, p := range pages {
		name, path, _ := strings.Cut(p, "=")
		name, width, _ := strings.Cut(name, "@")
		if err := b.page(name, width, path); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if slices.ContainsFunc(pages, func(p string) bool { return strings.HasSuffix(p, "=/") }) {
		if err := b.useFilter(); err != nil {
			return fmt.Errorf("using the filter: %w", err)
		}
	}
	var text2 string
	if err := chromedp.Run(b.ctx, chromedp.Submit(".who"), chromedp.WaitVisible("#token"),
		chromedp.Text("h1", &text2)); err != nil || text2 != "Log in" {
		b.problem("after the log out: %q, %v", text2, err)
	}
	return nil
}

// page opens a page in a window of that many pixels, or of the usual ones, and looks at it.
func (b *browser) page(name, width, path string) error {
	if pixels, err := strconv.Atoi(cmp.Or(width, "1280")); err != nil {
		return err
	} else if err := chromedp.Run(b.ctx, emulation.SetDeviceMetricsOverride(int64(pixels), 900, 1, false),
		chromedp.Navigate(b.url+path), chromedp.WaitVisible("#live")); err != nil {
		return err
	}
	// It follows changes: the first content comes by the stream.
	if err := chromedp.Run(b.ctx,
		chromedp.Poll(`document.getElementById("live-said").textContent === "live"`, nil,
			chromedp.WithPollingTimeout(time.Minute))); err != nil {
		b.problem("%s: does not follow changes: %v", name, err)
	}
	for _, scheme := range []string{"light", "dark"} {
		var low []string
		err := chromedp.Run(b.ctx,
			emulation.SetEmulatedMedia().
				WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
			shoot(b, name, scheme), chromedp.Evaluate(contrast, &low))
		if err != nil {
			return err
		}
		for _, l := range low {
			b.problem("%s, %s: hard to read: %s", name, scheme, l)
		}
	}
	if err := b.keys(name); err != nil {
		return err
	}
	if err := b.ears(name); err != nil {
		return err
	}
	// A phone: what is wider scrolls within itself, and says so.
	var problems []string
	err := chromedp.Run(b.ctx, emulation.SetDeviceMetricsOverride(360, 740, 1, true),
		chromedp.WaitReady("body"), chromedp.Evaluate(narrow, &problems, awaitPromise), shoot(b, name, "phone"),
		emulation.ClearDeviceMetricsOverride())
	if err != nil {
		return err
	}
	for _, p := range problems {
		b.problem("%s: on 360 px %s", name, p)
	}
	// No script in a foreign text runs, in any element.
	var ran bool
	err = chromedp.Run(b.ctx, chromedp.Evaluate(`(() => { const d = document.createElement("div");
		d.innerHTML = '<img src="x:" onerror="window.ran = true"><svg onload="window.ran = true"></svg>';
		const s = document.createElement("script");
		s.textContent = "window.ran = true";
		d.append(s); document.body.append(d); d.remove();
		return new Promise((done) => setTimeout(() => done(window.ran === true), 100)); })()`, &ran, awaitPromise))
	if err != nil {
		return err
	}
	if ran {
		b.problem("%s: its policy lets a foreign script run", name)
	}
	b.mu.Lock() // what that left in the log is what was wanted
	b.problems = slices.DeleteFunc(b.problems, func(p string) bool {
		return strings.HasPrefix(p, "the browser's log: ") && strings.Contains(p, "Content Security Policy")
	})
	b.mu.Unlock()
	return nil
}

func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// keys checks that the tabulator reaches all that can be used, the link over the menu first, and that one sees where it
// is.
func (b *browser) keys(name string) error {
	var all int
	if err := chromedp.Run(b.ctx, chromedp.Evaluate(`document.getElementById("live-on").click();
		window.scrollTo(0, 0); document.activeElement.blur();
		[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
			.filter((e) => e.checkVisibility()).length`, &all)); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range min(all, 60) {
		var at struct{ What, Outline, Text string }
		err := chromedp.Run(b.ctx, chromedp.KeyEvent(kb.Tab),
			chromedp.Evaluate(`(() => { const e = document.activeElement, s = getComputedStyle(e);
			if (!window.order) window.order = [];
			let n = window.order.indexOf(e); if (n < 0) n = window.order.push(e) - 1;
			return { What: n + " " + e.tagName, Outline: s.outlineStyle + " " + s.outlineWidth, Text: e.textContent };
			})()`, &at))
		if err != nil {
			return err
		}
		seen[at.What] = true
		if i == 0 && at.Text != "Skip to the content" {
			b.problem("%s: the first key leads to %s %q, want the link over the menu", name, at.What, at.Text)
		}
		if strings.HasSuffix(at.What, "BODY") || strings.HasPrefix(at.Outline, "none") ||
			strings.HasPrefix(at.Outline, "0px") {
			b.problem("%s: key %d leads to %s, which shows nothing of it (%s)", name, i+1, at.What, at.Outline)
		}
	}
	if len(seen) < min(all, 60) {
		b.problem("%s: keys reach %d of %d", name, len(seen), all)
	}
	return chromedp.Run(b.ctx, chromedp.Evaluate(`document.getElementById("live-on").click()`, nil))
}

// useFilter opens the filter, chooses a name and a state, and sends the form, all by keys. A change of the page must
// not take the focus away.
func (b *browser) useFilter() error {
	var focused string
	err := chromedp.Run(b.ctx,
		chromedp.Navigate(b.url+"/"), chromedp.WaitVisible("#live-on"),
		chromedp.Poll(settled, nil, chromedp.WithPollingTimeout(time.Minute)),
		// The first content of a stream replaces the content of the page.
		chromedp.Evaluate(`window.before = document.querySelector(".filter summary");
			before.focus();
			for (let i = 0; i < 2; i++) document.getElementById("live-on").click();`, nil),
		chromedp.Poll(`!window.before.isConnected`, nil, chromedp.WithPollingTimeout(time.Minute)),
		chromedp.Evaluate(`document.activeElement.tagName + " " + document.activeElement.textContent.slice(0, 30)`,
			&focused),
	)
	if err != nil {
		return err
	}
	if focused != "SUMMARY Filter" {
		b.problem("a change of the page moves the focus from the filter to %s", focused)
		return nil
	}
	var shown struct{ Name, State string }
	err = chromedp.Run(b.ctx,
		chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(".filter form"), // it unfolds
		chromedp.KeyEvent(kb.Tab+"n1"), chromedp.KeyEvent(kb.Tab+kb.ArrowDown), // the name, the first state
		chromedp.KeyEvent(kb.Tab+kb.Tab+kb.Tab), // the button
	)
	if err != nil {
		return err
	}
	if _, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		return err
	}
	err = chromedp.Run(b.ctx,
		chromedp.Evaluate(`(() => { const q = new URLSearchParams(location.search);
			return { Name: q.get("name"), State: q.get("state") }; })()`, &shown),
	)
	if err == nil && (shown.Name != "n1" || shown.State == "") {
		b.problem("keys filter by name %q and state %q, want n1 and the first state", shown.Name, shown.State)
	}
	return err
}

// needNames are roles of what a screen reader can only tell by its name.
var needNames = []string{"link", "button", "checkbox", "searchbox", "textbox", "combobox", "image", "img", "table",
	"region", "navigation"}

// ears checks what a screen reader is given.
func (b *browser) ears(name string) error {
	type word struct {
		Value any `json:"value"`
	}
	var tree struct { // the protocol's own types know the words of one version
		Nodes []struct {
			Ignored bool `json:"ignored"`
			Role    word `json:"role"`
			Name    word `json:"name"`
		} `json:"nodes"`
	}
	if err := chromedp.Run(b.ctx, chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
	})); err != nil {
		return err
	}
	roles := map[string]int{}
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		if n.Ignored {
			continue
		}
		roles[role]++
		named, _ := n.Name.Value.(string)
		if strings.TrimSpace(named) == "" && slices.Contains(needNames, role) {
			b.problem("%s: a %s without a name", name, role)
		}
	}
	for _, role := range []string{"banner", "main", "contentinfo", "navigation", "heading"} {
		if roles[role] == 0 {
			b.problem("%s: no %s among %v", name, role, roles)
		}
	}
	return nil
}

// shoot keeps what is seen: the page to the end of its figure, or its first 1100 pixels.
func shoot(b *browser, name, how string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var png []byte
		err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
			_, _, _, _, _, size, err := page.GetLayoutMetrics().Do(ctx)
			if err != nil {
				return err
			}
			height := min(size.Height, 1100)
			if err := chromedp.Evaluate(fmt.Sprintf(
				`document.querySelector("figure")?.getBoundingClientRect().bottom + scrollY + 16 || %f`, height),
				&height).Do(ctx); err != nil {
				return err
			}
			png, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).
				WithClip(&page.Viewport{Width: size.Width, Height: height, Scale: 1}).Do(ctx)
			return err
		}))
		if err != nil || len(png) == 0 {
			return errors.Join(errors.New("no screenshot"), err)
		}
		return os.WriteFile(filepath.Join(b.out, name+"-"+how+".png"), png, 0o644)
	})
}

// narrow finds what does not fit a phone: a page that is wider, a box that scrolls without a hint or that has a hint
// and does not scroll, and names that are broken into lines. What to do about the first node must be on the first
// screen, the filter folded, and a command copied by its button. It waits until the page has seen its new width.
const narrow = `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => {
	scrollTo({top: 0, behavior: "instant"}); // an earlier check may have left it in the middle of a smooth scroll
	const out = [], all = (what) => [...document.querySelectorAll(what)].filter((e) => e.checkVisibility());
	if (document.documentElement.scrollWidth > 360)
		out.push("the page is " + document.documentElement.scrollWidth + " px wide");
	for (const s of all(".scroll")) {
		const hint = getComputedStyle(s, "::before").display === "block";
		if (hint !== s.scrollWidth > s.clientWidth + 1)
			out.push(s.getAttribute("aria-label") + ": " + s.scrollWidth + " of " + s.clientWidth + " px, hint: " +
				hint);
	}
	for (const t of all("table")) {
		const next = t.caption.textContent === "Nodes" && t.querySelector("td.own .text")?.getBoundingClientRect();
		if (next && (next.bottom > innerHeight || next.right > 360))
			out.push("what to do about the first node ends at " + next.right + ", " + next.bottom + " px");
	}
	for (const d of all("details.filter[open]")) out.push("the filter is not folded");
	for (const c of all(".copy").slice(0, 1)) {
		c.click();
		const has = getSelection().toString().trim(), want = c.previousElementSibling.textContent;
		if (has !== want) out.push("Copy selects " + has + ", want " + want);
	}
	for (const n of all(".name:not(ul)")) {
		const boxes = [...n.getClientRects()];
		if (Math.max(...boxes.map((b) => b.top)) >= Math.min(...boxes.map((b) => b.bottom)))
			out.push("the name " + n.textContent + " has several lines");
	}
	return out;
})`

// contrast finds texts whose colour is too near to what is behind them, as WCAG 2 measures it: 4.5, or 3 where they are
// large. It finds bars of a picture with less than 3, and phases that share a colour.
const contrast = `(() => {
	const number = (c) => {
		const m = c.match(/[\d.]+/g).map(Number);
		return m.length < 4 || m[3] > 0 ? m.slice(0, 3) : null;
	};
	const light = (c) => {
		const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ratio = (a, b) => {
		const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
		return (x + 0.05) / (y + 0.05);
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) { const c = number(getComputedStyle(e).backgroundColor); if (c) return c; }
		return [255, 255, 255];
	};
	const out = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
		if (!e.getClientRects().length || ["TITLE", "DESC"].includes(e.tagName.toUpperCase())) continue;
		const style = getComputedStyle(e), svg = e instanceof SVGElement;
		let back = behind(svg ? e.ownerSVGElement : e);
		if (svg && e.classList.contains("phase")) back = number(getComputedStyle(e.previousElementSibling).fill);
		const need = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
		const has = ratio(number(svg ? style.fill : style.color), back);
		if (has < need) out.push(e.tagName + "." + (e.getAttribute("class") || "") + " " +
			JSON.stringify(e.textContent.slice(0, 30)) + ": " + has.toFixed(2));
	}
	const colours = new Map();
	for (const e of document.querySelectorAll(".picture .span, .picture .step:not(.often), .picture .done")) {
		const fill = getComputedStyle(e).fill, has = ratio(number(fill), behind(e.ownerSVGElement));
		if (has < 3) out.push("bar " + e.getAttribute("class") + ": " + has.toFixed(2));
		if (e.classList.contains("span")) colours.set(e.getAttribute("class"), fill);
	}
	if (new Set(colours.values()).size < colours.size) out.push("phases share a colour: " + [...colours]);
	return out.slice(0, 10);
})()`
