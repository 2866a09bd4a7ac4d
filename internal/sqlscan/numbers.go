package sqlscan

import "strconv"

// ParamNumbers are the numbers of the parameters $2, $1 or ?2 in their order in the text, each as often as it stands there. Those
// without a number are not among them.
func ParamNumbers(sql string) (numbers []int) {
	l := lexer{d: standardDialect, sql: sql}
	toks := l.scan()
	for i, t := range toks[:max(len(toks)-1, 0)] {
		next := toks[i+1]
		if !t.isPunct("$") && !t.isPunct("?") || next.kind != numberToken || next.start != t.end {
			continue
		}
		if number, err := strconv.Atoi(next.text); err == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers
}
