package poolz

import (
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"strings"
)

//go:embed page/page.html
var html string

//go:embed page/page.css
var css string

//go:embed page/page.js
var script string

//go:embed page/charts.js
var charts string

// document is the page in one piece, with what its policy allows: its own script and
// style, by their hashes, so that nothing else that got into it would run.
var document = func() (d struct {
	text            []byte
	scripts, styles string
}) {
	js := "\"use strict\";\n" + charts + script
	d.text = []byte(strings.NewReplacer("/*style*/", css, "/*script*/", js).Replace(html))
	d.scripts, d.styles = hashOf(js), hashOf(css)
	return d
}()

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
