import tseslint from 'typescript-eslint';

// Names of classes, bands and files reach the page only as text nodes: nothing here may parse a string as markup or code.
const MARKUP = ['innerHTML', 'outerHTML', 'insertAdjacentHTML', 'srcdoc'];

export default tseslint.config(
  { ignores: ['node_modules/', '.tests/', 'build.mjs', 'eslint.config.mjs'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      'no-eval': 'error',
      'no-implied-eval': 'error',
      eqeqeq: 'error',
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      'no-restricted-syntax': [
        'error',
        { selector: `MemberExpression[property.name=/^(${MARKUP.join('|')})$/]`, message: 'Use text nodes.' },
      ],
    },
  },
  { files: ['tests/**'], rules: { '@typescript-eslint/no-floating-promises': 'off' } },
);
