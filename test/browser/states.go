package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// screens are the screens that each state is looked at with.
var screens = []struct {
	name          string
	width, height int64
	phone         bool
	scheme        string // of colours
}{
	{"desktop", 1280, 900, false, "light"},
	{"dark", 1280, 900, false, "dark"},
	{"phone", 390, 844, true, "light"},
}

// visitStates takes a picture of each page, given as name=address, as each screen shows it. It checks the page's layout
// and contrast.
func (b *browser) visitStates(pages []string) error {
	// Else the browser shows no focus: no window has it.
	if err := chromedp.Run(b.ctx, emulation.SetFocusEmulationEnabled(true)); err != nil {
		return fmt.Errorf("setting focus: %w", err)
	}
	for _, p := range pages {
		name, address, _ := strings.Cut(p, "=")
		for _, s := range screens {
			err := chromedp.Run(b.ctx,
				emulation.SetDeviceMetricsOverride(s.width, s.height, 1, s.phone),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: s.scheme},
					{Name: "prefers-reduced-motion", Value: "reduce"},
				}))
			if err != nil {
				return fmt.Errorf("setting up screen %s: %w", s.name, err)
			}
			problems, err := b.lookAtState(name+"-"+s.name, address)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, s.name, err)
			}
			for _, text := range problems {
				b.problem("%s, %s: %s", name, s.name, text)
			}
		}
	}
	var wide float64
	if err := chromedp.Run(b.ctx, chromedp.Evaluate(fontWidth, &wide)); err != nil {
		return fmt.Errorf("measuring font: %w", err)
	}
	return os.WriteFile(filepath.Join(b.out, "font-width"), fmt.Append(nil, wide), 0o644)
}

// lookAtState opens the page, writes its picture, and returns what is wrong with it.
func (b *browser) lookAtState(file, address string) (problems []string, err error) {
	var low []string
	var png []byte
	err = chromedp.Run(b.ctx,
		chromedp.Navigate(address), chromedp.WaitReady("#live"),
		chromedp.Poll(settled, nil, chromedp.WithPollingTimeout(time.Minute)),
		chromedp.Evaluate(layout, &problems, awaitPromise),
		chromedp.Evaluate(contrast, &low),
		chromedp.ActionFunc(func(ctx context.Context) error {
			_, _, _, _, _, size, err := page.GetLayoutMetrics().Do(ctx)
			if err != nil {
				return err
			}
			png, err = page.CaptureScreenshot().WithCaptureBeyondViewport(true).
				WithClip(&page.Viewport{Width: size.Width, Height: size.Height, Scale: 1}).Do(ctx)
			return err
		}))
	if err != nil {
		return nil, err
	}
	for _, text := range low {
		problems = append(problems, "hard to read: "+text)
	}
	return problems, os.WriteFile(filepath.Join(b.out, file+".png"), png, 0o644)
}

// settled reports whether the page is complete: a page that follows changes says that it is live.
const settled = `document.readyState === "complete" &&
	["live", undefined].includes(document.getElementById("live-said")?.textContent)`

// fontWidth measures a text in the page's font. Pictures are alike only where it is as wide.
const fontWidth = `(() => {
	const s = document.createElement("span");
	s.style.cssText = "position: absolute; white-space: nowrap; font-size: 100px";
	s.textContent = "forcefence 0123456789 No node needs a person.";
	document.body.append(s);
	const wide = s.getBoundingClientRect().width;
	s.remove();
	return Math.round(wide);
})()`

// layout finds texts and controls that overlap, words that are broken into lines though a line has room for them,
// texts that are cut or outside of the screen, boxes that scroll on a wide screen, table columns without a head or
// without any content, and a log in without focus.
const layout = `document.fonts.ready.then(() => new Promise((done) =>
	requestAnimationFrame(() => requestAnimationFrame(done)))).then(() => {
	document.documentElement.style.caretColor = "transparent"; // a caret that blinks is in some pictures only
	const out = [], wide = innerWidth, short = (s) => JSON.stringify(s.trim().slice(0, 50));
	const isShown = (e) => {
		if (!e.checkVisibility({ visibilityProperty: true }) || e.closest("title, desc, option, script, style"))
			return false;
		for (let p = e; p; p = p.parentElement) if (getComputedStyle(p).clipPath !== "none") return false;
		return !e.closest(".skip");
	};
	const boxes = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walk.nextNode());) {
		const e = n.parentElement, range = document.createRange();
		if (!n.textContent.trim() || !isShown(e)) continue;
		range.selectNodeContents(n);
		for (const r of range.getClientRects()) if (r.width && r.height) boxes.push({ e, n, r });
		// A line may end after the dash of a word, and not after that of a name such as rack1-node2.
		for (const m of n.textContent.matchAll(/[^\s\/]+-[^\s\/]*\d[^\s\/]*|[^\s\-\/]+/g)) {
			range.setStart(n, m.index); range.setEnd(n, m.index + m[0].length);
			const all = [...range.getClientRects()].filter((r) => r.width);
			const lines = new Set(all.map((r) => Math.round(r.top))), sum = all.reduce((w, r) => w + r.width, 0);
			if (lines.size > 1 && sum < 280) out.push("a broken word: " + m[0]);
		}
	}
	for (const e of document.querySelectorAll("button, input:not([type=hidden]), select"))
		if (isShown(e)) boxes.push({ e, n: e, r: e.getBoundingClientRect() });
	for (let i = 0; i < boxes.length; i++) for (let k = i + 1; k < boxes.length; k++) {
		const a = boxes[i], b = boxes[k];
		if (a.n === b.n || a.n === b.e || b.n === a.e || a.n.contains?.(b.n) || b.n.contains?.(a.n)) continue;
		if (Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left) > 1 &&
			Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top) > 3)
			out.push("overlap: " + short(a.n.textContent || a.e.tagName) + " and " +
				short(b.n.textContent || b.e.tagName));
	}
	if (document.documentElement.scrollWidth > wide)
		out.push("the page is " + document.documentElement.scrollWidth + " of " + wide + " px wide");
	for (const { e, n, r } of boxes)
		if ((r.right > wide + 1 || r.left < -1) && !(wide < 768 && e.closest(".scroll")))
			out.push("outside of the screen: " + short(n.textContent || e.tagName));
	for (const s of document.querySelectorAll(".scroll"))
		if (isShown(s) && wide > 768 && s.scrollWidth > s.clientWidth + 1)
			out.push(s.getAttribute("aria-label") + ": " + s.scrollWidth + " of " + s.clientWidth + " px");
	for (const e of document.querySelectorAll("body *")) {
		const s = getComputedStyle(e);
		if (isShown(e) && !e.matches("input, select") && [s.overflowX, s.overflowY].includes("hidden") &&
			!(e instanceof SVGElement) && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1))
			out.push("cut: " + short(e.textContent));
	}
	for (const t of document.querySelectorAll("table")) {
		const heads = [...t.tHead?.rows[0]?.cells ?? []], rows = [...t.tBodies[0].rows];
		if (!t.caption?.textContent.trim()) out.push("a table without a caption");
		for (const r of rows) if (r.cells.length !== heads.length)
			out.push(t.caption.textContent + ": " + r.cells.length + " cells under " + heads.length + " heads");
		heads.forEach((h, i) => {
			if (!h.textContent.trim() || h.scope !== "col") out.push("column " + i + " has no head");
			if (!rows.some((r) => r.cells[i]?.textContent.trim()))
				out.push(t.caption.textContent + ": column " + h.textContent + " is empty");
		});
	}
	const token = document.getElementById("token");
	if (token && document.activeElement !== token) out.push("the log in has no focus");
	return [...new Set(out)].slice(0, 20);
})`
