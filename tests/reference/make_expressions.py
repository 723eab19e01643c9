#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes expressions.json: what Jinja2, as transformers sets it up, makes of short templates.

Null where it raises an error. Needs transformers 5.24 and jinja2 3.1.6.
"""
import copy
import datetime
import itertools
import json
import pathlib

from transformers.utils import chat_template_utils

VARIABLES = {"a": "Ab c", "n": [3, 1, 2], "d": {"x": 1, "items": 2, "y": [True, None]}, "f": 2.5,
             "o": [{"k": "b", "v": 1}, {"k": "A", "v": 2}, {"k": "b", "v": 3}],
             "u": "\u00fcber \u1e9etra\u00dfe \u4e2d"}


class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 24, 12, 30, 5)


chat_template_utils.datetime = Then

VALUES = ['a', 'n', 'd', 'f', 'o', 'u', 'q', 'none', 'true', '7', '-7', '1e17', '1e-7', '0.1',
          "''", '\'it\\\'s "x"\\t\\n\\x07\\u4e2d\'', '[]', '{}', '(1,)', "(1, 'a')", 'd.y',
          'd.items()', 'd.keys()', "d['items']", 'n[1:]', 'n[::-1]', 'a[-2:]', 'u[1]',
          "n|map('string')|list", "'  x y  z '", "'a\\r\\nb\\n\\nc\\x0bd'", "'<b>&'|safe",
          "'12'", "'-1.5e3'", "'0x1f'", '1.0', '-0.0', '2 ** 40', '12345678901234567.0',
          'n|sort', "'😀\\x7f'"]
FILTERS = ['abs', 'capitalize', 'center(9)', 'count', "d('z')", "default('z', true)",
           'dictsort', "dictsort(reverse=true, by='value')", 'escape', 'first', 'float',
           'float(1)', 'indent', 'indent(2, true, blank=true)', "indent('> ')", 'int',
           'int(9)', 'int(base=16)', 'items|list', 'join', "join(', ')", 'last', 'length',
           'list', 'lower', 'max', 'min', 'reverse|list', "replace('a', '<')",
           "replace('', '-', 2)", 'round', "round(1, 'floor')", 'safe', 'select|list',
           "reject('none')|list", 'sort', 'sort(reverse=true)', 'string', 'sum', 'title',
           'tojson', 'tojson(indent=2)', 'tojson(ensure_ascii=true, sort_keys=true)',
           "tojson(separators=(',', ':'))", 'trim', "trim('A c')", 'truncate(5)',
           "truncate(3, true, '')", 'unique|list', 'upper', 'wordcount', 'batch(2)|list',
           'batch(2, 0)|list', "map('length')|list", "e ~ '<'", "format('x')", "attr('x')",
           "map(attribute='k')|list", "selectattr('k', 'equalto', 'b')|list",
           "rejectattr('v', 'gt', 1)|list", "groupby('k')|list", "sort(attribute='k,v')",
           "map(attribute='z', default=5)|join('|')", "sum(attribute='v')", 'string|length']
TESTS = ['boolean', 'callable', 'defined', 'divisibleby 3', 'eq 7', 'even', 'escaped', 'false',
         'float', 'ge 2', 'gt 2', "in [7, 'a', 3]", 'integer', 'iterable', 'le 2', 'lower',
         'lt 2', 'mapping', 'ne 7', 'none', 'number', 'odd', 'sameas none', 'sequence',
         'string', 'true', 'undefined', 'upper']
BINARY = ['+', '-', '*', '/', '//', '%', '**', '~', '==', '!=', '<', '<=', '>', '>=', 'in',
          'not in', 'and', 'or']
OPERANDS = ['a', 'n', 'd', 'f', 'q', 'none', 'true', '7', '-2', '0', "''", "'b'", "'%s!'",
            '(1,)', '[1]', "'<'|safe"]
# A filter such as indent adds to a list in place: each template gets separate variables.
METHODS = ['capitalize()', 'center(8)', "count('b')", "endswith('c')", "endswith(('x', 'c'))",
           "find('b')", "find('z')", "get('x')", "get('q', 5)", "index('b')", 'isalpha()',
           'isdigit()', 'isspace()', 'items()', "join(['1', '2'])", 'keys()', "ljust(8, '.')",
           'lower()', 'lstrip()', "lstrip('A')", "partition(' ')", "removeprefix('A')",
           "removesuffix('c')", "replace('b', 'BB')", "replace('', '-')", "rfind('c')",
           'rjust(8)', "rpartition('b')", "rsplit(' ', 1)", "rstrip('c ')", 'split()',
           "split('b')", 'split(None, 1)', "split(' ', 1)", 'splitlines()', "startswith('A')",
           "startswith('b', 1)", 'strip()', "strip('Ac')", 'title()', 'upper()', 'values()',
           'zfill(8)', 'append(1)', 'nothing', 'nothing.more']
REST = ["{{ 'a' 'b' }}", '{{ 1 if false }}', '{{ 1 if q else 2 if n else 3 }}',
        '{{ not q and n[0] }}', '{{ -n[0]|abs }}', '{{ 2 ** 3 ** 2 }}', '{{ 1 < 2 < 3 }}',
        '{{ 1 < 3 < 2 }}', '{{ (1, 2)[0] }}', '{{ n.0 }}', '{{ d.y[0] }}', '{{ d.y.1 }}',
        '{{ n[7] }}', '{{ n[-1:0:-1] }}', '{{ a[::2] }}',
        "{{ '%5.1f|%-4s|%03d|%r|%%' % (2.25, 'x', 7, 'q') }}", "{{ '{}-{}'.format(1, 'x') }}",
        "{{ '{1}{0}{k}'.format(1, 2, k=3) }}",
        "{{ '{:5}|{:5}|{:05.1f}|{:d}'.format('x', 7, 2.25, 3) }}", "{{ '%(x)s' % d }}",
        "{{ 'x'|format }}", "{{ '%s-%s'|format(1, 2) }}", '{{ dict(a=1, b=2) }}',
        "{{ dict([('x', 1)], y=2) }}", '{{ namespace(a=1) }}', '{{ range(5, 0, -2)|list }}',
        "{{ strftime_now('%Y-%m-%d %B') }}",
        '{% set x = 1 %}{% for i in n %}{{ x }}{% set x = i %}{% endfor %}{{ x }}',
        '{% set s = namespace(t=0) %}{% for i in n %}{% set s.t = s.t + i %}{% endfor %}{{ '
        's.t }}',
        '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}',
        '{% for i in [] %}x{% else %}none{% endfor %}',
        '{% for i in n if i > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor '
        '%}',
        '{% for i in n %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem is defined }}{% endfor '
        '%}',
        "{% for i in n %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.cycle('a', 'b') }}{{ "
        'loop.depth }}{% endfor %}',
        '{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}',
        '{% for i in n %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if i == 2 %}{% '
        'break %}{% endif %}{% endfor %}',
        '{% for i in n %}{% for j in n %}{{ loop.index0 }}{{ loop.depth0 }}{% endfor %}{{ '
        'loop.index }}{% endfor %}',
        '{% macro m(x, y=2, z=x) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ m(1) }}{{ m(1, z=3) '
        '}}{{ m() }}',
        '{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}',
        '{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m(5) %}{{ y + 1 }}{% '
        'endcall %}',
        '{% macro m() %}{{ w }}{% endmacro %}{% set w = 4 %}{{ m() }}',
        '{% macro m(i) %}{% if i %}{{ i }}{{ m(i - 1) }}{% endif %}{% endmacro %}{{ m(3) }}',
        '{% set x %}a{{ n }}{% endset %}{{ x|upper }}',
        '{% set x | upper %}abc{% endset %}{{ x }}',
        '{% filter upper | trim %} abc {% endfilter %}',
        '{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}{{ x }}',
        '{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}',
        "{% print 1, 'a' %}", '{% set x, y = 1, 2 %}{{ y }}{{ x }}', '{% set x = 1, %}{{ x }}',
        '{% if q %}1{% elif n %}2{% else %}3{% endif %}',
        '{% raw %}{{ a }} {% x %}{% endraw %}', ' {%- raw -%} \n b \n {%- endraw %} \n c',
        'a {# x #} b {#- y -#} c', '  {% if n %}\n  x\n  {% endif %}\n y\n',
        '  {%+ if n %}\n  x\n  {%- endif +%}\n y\n\n', '{{ a -}}  \n b {{- a }}',
        'a\r\nb\rc\n', "{{ {'a': {'b': 1}}['a'] }}", '{{ {1: 2, 1.0: 3, True: 4} }}',
        "{{ [1, [2, (3,)], {'k': none}] }}", "{{ 'x' in q }}", "{{ q ~ 'x' ~ none ~ 1.50 }}",
        '{{ q|length }}{{ q|list }}', '{{ q.x }}', '{{ q + 1 }}',
        '{{ a is not none }}{{ a is not defined }}', '{{ n is sequence and n is iterable }}',
        "{{ 'a' is in a }}",
        "{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}",
        '{% if false %}{{ a|nope }}{% endif %}ok', "{{ a|nope if false else 'ok' }}",
        '{% for i in [] %}{{ i|nope }}{% endfor %}ok', '{{ 1_000 + 0x1f + 0b11 + 0o17 }}',
        '{{ 1.5e3 }}{{ 1e5 }}{{ .5 }}', "{{ '\\x41\\u00e9\\101\\q\\\n' }}",
        "{{ m|map('upper') | list }}",
        "{% set it = n|map('string') %}{{ it|join }}{{ it|join }}", '{{ n|reverse|first }}',
        '{{ (n|select)|length }}',
        "{{ ('<'|safe) + '<' }}{{ ('<'|safe)|upper }}{{ ('<' ~ ('<'|safe)) }}",
        '{{ d.items is callable }}', '{{ d|items|list }}{{ d|list }}',
        "{% for c in 'hé' %}{{ c }}.{% endfor %}",
        '{{ 10 // 3 }}{{ -10 // 3 }}{{ -10 % 3 }}{{ 10.5 // 3 }}', '{{ loop }}',
        '{% for i in n %}{{ loop }}{% endfor %}', '{{ true + true }}',
        '{{ none }}{{ None }}{{ True }}']


def main():
    sources = ["{{ (%s) | %s }}" % pair for pair in itertools.product(VALUES, FILTERS)]
    sources += ["{{ (%s) is %s }}" % pair for pair in itertools.product(VALUES, TESTS)]
    sources += ["{{ (%s) %s (%s) }}" % (x, op, y)
                for op, x, y in itertools.product(BINARY, OPERANDS, OPERANDS)]
    sources += ["{{ (%s).%s }}" % pair for pair in itertools.product(VALUES, METHODS)]
    # Jinja2 itself misreads a negative base; the others are refused by name.
    refused = ["(-2) **", "safe).join", "truncate(5)", "truncate(3, true, '')"]
    sources = [source for source in sources if not any(part in source for part in refused)]
    sources += ["{{ 'one two three' | truncate(%s) }}" % rest
                for rest in ("5", "5, true", "9, leeway=0", "3, true, ''", "9, false, '!', 1",
                               "99")]
    sources += ["{{ %s }}" % value for value in VALUES] + REST
    made = {}
    for source in sources:
        try:
            template = chat_template_utils._compile_jinja_template(source)
            made[source] = template.render(**copy.deepcopy(VARIABLES))
        except Exception:  # whatever Jinja2 raises
            made[source] = None
        if made[source] and " at 0x" in made[source]:
            made[source] = None  # the address of an object
    path = pathlib.Path(__file__).parent / "expressions.json"
    path.write_text(json.dumps(made, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
